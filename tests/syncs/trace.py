"""Reads what `strace -f -xx` wrote: the system calls of all threads in the order in which they began and ended.

A call that another thread's call interrupts in the listing stands there twice, as `<unfinished ...>` and as
`<... resumed>`; it becomes one event with the numbers of both lines.
"""

import re
from dataclasses import dataclass

LINE = re.compile(r"^(\d+) +(.*)$")
RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
CALL = re.compile(r"^(\w+)\((.*)$", re.S)
RESULT = re.compile(r"\) += (-?\d+|\?)(.*)$", re.S)
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


@dataclass
class Call:
    """One system call: what, with what, what it answered, and the lines at which it began and ended."""

    name: str
    args: str
    result: int
    began: int
    ended: int

    def strings(self):
        """The bytes of its string arguments, in order."""
        found = []
        for match in STRING.finditer(self.args):
            if match.group(2):
                raise ValueError(f"line {self.began}: the listing has not all bytes of a {self.name}")
            found.append(bytes.fromhex(match.group(1).replace("\\x", "")))
        return found

    def number(self, position):
        """A numeric argument by its place, the strings and structures counted as one each."""
        return int(split(self.args)[position], 0)


def split(args):
    """The arguments of a call, at the commas that are in no bracket and no string."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, char in enumerate(args):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(args[start:at].strip())
            start = at + 1
    parts.append(args[start:].strip())
    return parts


def read(path):
    """Every call that was answered, in the order in which they ended."""
    open_calls = {}
    calls = []
    with open(path, encoding="ascii", errors="replace") as lines:
        for number, line in enumerate(lines):
            match = LINE.match(line.rstrip("\n"))
            if not match:
                continue
            thread, text = match.groups()
            resumed = RESUMED.match(text)
            if resumed:
                began, text = open_calls.pop(thread, (number, resumed.group(1) + "("))
                text += resumed.group(2)
            elif text.endswith("<unfinished ...>"):
                open_calls[thread] = (number, text[: -len("<unfinished ...>")].rstrip())
                continue
            else:
                began = number
            call = CALL.match(text)
            result = RESULT.search(text)
            if not call or not result or result.group(1) == "?":
                continue
            args = call.group(2)[: result.start() - call.start(2)]
            calls.append(Call(call.group(1), args, int(result.group(1)), began, number))
    return calls
