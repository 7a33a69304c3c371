"""A file system as a power cut leaves it: of each file what was synced, of each directory the names that were.

It is fed with the calls of a trace. `image()` is what a machine would find that lost everything unsynced at this
moment; with `keep` a part of the unsynced writes has reached the disk all the same.
"""


class File:
    def __init__(self):
        self.live = bytearray()
        self.durable = b""
        # Of what was done since the last sync: (position, bytes), or a new length.
        self.unsynced = []

    def write(self, position, data):
        end = position + len(data)
        if end > len(self.live):
            self.live.extend(bytes(end - len(self.live)))
        self.live[position:end] = data
        self.unsynced.append((position, data))

    def truncate(self, length):
        if length < len(self.live):
            del self.live[length:]
        else:
            self.live.extend(bytes(length - len(self.live)))
        self.unsynced.append(length)


class Disk:
    """Paths are absolute. `root` is the directory that counts; nothing above it is looked at."""

    def __init__(self, root):
        self.root = root
        self.live = {}  # path -> File
        self.durable = {}  # path -> File
        self.dirs = set()
        self.durable_dirs = {root}
        self.pending = {}  # directory -> [(path, File or None)], None: the name is gone

    def inside(self, path):
        return path == self.root or path.startswith(self.root + "/")

    @staticmethod
    def parent(path):
        return path.rsplit("/", 1)[0]

    def _name(self, path, file):
        self.pending.setdefault(self.parent(path), []).append((path, file))

    def create(self, path):
        file = File()
        self.live[path] = file
        self._name(path, file)
        return file

    def mkdir(self, path):
        self.dirs.add(path)
        self.pending.setdefault(self.parent(path), []).append((path, "dir"))

    def rename(self, old, new):
        file = self.live.pop(old, None)
        if file is None:
            return
        self.live[new] = file
        self._name(old, None)
        self._name(new, file)

    def unlink(self, path):
        if self.live.pop(path, None) is not None:
            self._name(path, None)

    def sync_file(self, file, up_to):
        """Everything is durable that was written before the sync began: the first `up_to` changes."""
        content = bytearray(file.durable)
        for change in file.unsynced[:up_to]:
            apply(content, change)
        file.durable = bytes(content)
        del file.unsynced[:up_to]

    def sync_dir(self, path):
        for name, what in self.pending.pop(path, []):
            if what == "dir":
                self.durable_dirs.add(name)
            elif what is None:
                self.durable.pop(name, None)
            else:
                self.durable[name] = what

    def image(self, keep=None):
        """{path relative to the root: bytes}; `keep(change)` says whether an unsynced change is there all the same."""
        files = {}
        for path, file in self.durable.items():
            content = bytearray(file.durable)
            if keep:
                for change in file.unsynced:
                    if keep(change):
                        apply(content, change)
            files[path[len(self.root) + 1 :]] = bytes(content)
        return files


def apply(content, change):
    if isinstance(change, int):
        if change < len(content):
            del content[change:]
        else:
            content.extend(bytes(change - len(content)))
        return
    position, data = change
    end = position + len(data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    content[position:end] = data
