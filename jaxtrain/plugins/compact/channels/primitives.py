"""Primitives of JAX, grouped by their effect on channels."""

# Elementwise primitives.
ELEMENTWISE = frozenset(
    {
        *(
            "abs",
            "add",
            "add_any",
            "and",
            "atan2",
            "cbrt",
            "ceil",
            "clamp",
            "cos",
            "div",
        ),
        *(
            "convert_element_type",
            "eq",
            "erf",
            "erf_inv",
            "erfc",
            "exp",
            "exp2",
            "expm1",
        ),
        *("floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "lt"),
        *(
            "logistic",
            "max",
            "min",
            "mul",
            "ne",
            "neg",
            "nextafter",
            "not",
            "or",
            "pow",
        ),
        *(
            "reduce_precision",
            "rem",
            "round",
            "rsqrt",
            "select_n",
            "sign",
            "sin",
            "sqrt",
        ),
        *("square", "sub", "tan", "tanh", "xor"),
    }
)
REDUCTIONS = frozenset(
    {
        *("argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or"),
        *("reduce_prod", "reduce_sum"),
    }
)
WINDOWS = frozenset(
    {
        *(
            "reduce_window",
            "reduce_window_max",
            "reduce_window_min",
            "reduce_window_sum",
        ),
    }
)
