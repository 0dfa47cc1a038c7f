"""The part of CloudWatch metric math that alarms on single datapoints need."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

Value = float | None


class UnsupportedMathError(ValueError):
    """An expression uses what is not simulated."""


_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def evaluate(expressions: Mapping[str, str], values: Mapping[str, Value], wanted: str) -> Value:
    """The datapoint of `wanted`; None when it is missing. Raises UnsupportedMathError."""
    if wanted in values:
        return values[wanted]
    return _Evaluator(expressions, values).of(wanted)


class _Evaluator:
    def __init__(self, expressions: Mapping[str, str], values: Mapping[str, Value]) -> None:
        self._expressions = expressions
        self._values = values

    def of(self, name: str) -> Value:
        if name in self._values:
            return self._values[name]
        if name not in self._expressions:
            raise UnsupportedMathError(f"no metric has the id {name}")
        return self._node(ast.parse(self._expressions[name], mode="eval").body)

    def _node(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=(int() | float()) as number):
                return float(number)
            case ast.Name(id=name):
                return self.of(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._node(operand)
                return None if value is None else -value
            case ast.BinOp() if type(node.op) in _BINARY:
                return _apply(_BINARY[type(node.op)], self._node(node.left), self._node(node.right))
            case ast.Compare(ops=[compare]) if type(compare) in _COMPARE:
                return _apply(_COMPARE[type(compare)], self._node(node.left), self._node(node.comparators[0]))
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return self._call(function, arguments)
            case _:
                raise UnsupportedMathError(f"not simulated: {ast.unparse(node)}")

    def _call(self, function: str, arguments: list[ast.expr]) -> Value:
        match function, arguments:
            case "FILL", [metric, fill]:
                value = self._node(metric)
                return self._node(fill) if value is None else value
            case "IF", [condition, then, otherwise]:
                return self._node(then if self._node(condition) else otherwise)
            case (("SUM" | "MAX" | "MIN"), [ast.Call(func=ast.Name(id="METRICS")) | ast.List()]):
                return self._fold(function, arguments[0])
            case _:
                raise UnsupportedMathError(f"not simulated: {function} of {len(arguments)} arguments")

    def _fold(self, function: str, metrics: Any) -> Value:
        values = [self._node(one) for one in metrics.elts] if isinstance(metrics, ast.List) else self._values.values()
        known = [value for value in values if value is not None]
        if not known:
            return None
        return {"SUM": sum, "MAX": max, "MIN": min}[function](known)  # type: ignore[operator,no-any-return]


def _apply(function: Callable[[float, float], float], left: Value, right: Value) -> Value:
    if left is None or right is None or (function is operator.truediv and right == 0):
        return None
    return float(function(left, right))
