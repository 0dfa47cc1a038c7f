"""A library that only the layer brings."""

LAYER_WORD = "from the layer"
