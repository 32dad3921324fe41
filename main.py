"""Run jaxtrain: `python main.py --config configs/digits.py`; `--help` tells more."""

from jaxtrain.__main__ import run

if __name__ == "__main__":
    run()
