"""One module a command, with its name in `jaxtrain.cli.COMMANDS`.

Each has a dataclass of its options, whose docstring is its line in the help; `EXAMPLE`,
a call that the help shows; and `run(arguments, signals)`, whose type of `arguments` is
that dataclass. Wrong input, and files that cannot be written, raise UserError; what
else `run` may raise stands in `jaxtrain.cli.main`. It imports what needs JAX inside
`run`: JAX takes a second, and the words are parsed before.
"""
