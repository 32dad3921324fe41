"""Run jaxtrain: `python main.py --config configs/digits.py`; `--help` tells more."""

from jaxtrain.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
