"""Figures that are shipped with the Governor, with their source and date."""
