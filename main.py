"""Run jaxtrain: `python main.py --config configs/digits.py`; `--help` lists the rest."""

from jaxtrain.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
