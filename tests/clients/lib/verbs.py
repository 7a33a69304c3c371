"""The loop of the programs in Python: a verb a line on standard input, an answer a line on standard output."""

import sys
import traceback


class NoWord(Exception):
    """Raised by a verb that this client's API has no way to express; the text says what is missing."""


def serve(verbs, kind):
    """`verbs` maps a verb to a function of its words, which returns a value, a list of values or None; `kind` tells
    of an error whether it is fenced, fatal or other."""
    for line in sys.stdin:
        verb, *words = line.rstrip("\n").split("\t")
        try:
            values = verbs[verb](*words)
            values = [] if values is None else values if isinstance(values, list) else [values]
            answer = ["ok", *map(str, values)]
        except NoWord as reason:
            answer = ["none", str(reason)]
        except Exception as error:
            traceback.print_exc()
            answer = ["err", kind(error), " ".join(f"{type(error).__name__}: {error}".split())]
        print("\t".join(answer), flush=True)
