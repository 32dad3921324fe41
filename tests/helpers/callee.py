"""A process that calls the functions it is sent, until nobody is there to send any."""

import sys
import traceback
from multiprocessing.connection import Client


def main() -> None:
    with Client(sys.argv[1], family="AF_UNIX") as link:
        while True:
            try:
                function, args = link.recv()
            except EOFError:
                return
            try:
                link.send((function(*args), None))
            except Exception as error:
                error.add_note(traceback.format_exc())
                link.send((None, error))


if __name__ == "__main__":
    main()
