#!/usr/bin/env python3
"""No call blocks for ever: whatever may wait says in its own line, or in a comment that ends there or just
above, why it does not wait long.

A call is seen to be bounded when its arguments say so (MSG_DONTWAIT, LOCK_NB, a timeout of 0 …). Any other
one needs the words `bounded: why` in a comment on its lines or on the lines just above them.

    blocking.py SOURCE_DIR       exit 1 with the calls that say nothing
    blocking.py --self-test      plants some
"""
import pathlib
import re
import sys
import tempfile

FOLDERS = ["src", "bindings", "tool/run"]

# What may wait, and which of its arguments show that it does not. Work::wait and Store's calls have deadlines
# of their own.
CALLS = {
    r"::(recv|recvmsg|recvfrom|send|sendmsg)": r"MSG_DONTWAIT|nonblocking",
    r"::(accept|accept4)": r"SOCK_NONBLOCK",
    r"::(connect|getaddrinfo|getnameinfo|sem_wait|wait|lockf|pause|fsync|fdatasync|tcdrain)": None,
    r"::(poll|ppoll|select|epoll_wait|epoll_pwait)": r", 0\)$",
    r"::(waitpid|wait4|waitid)": r"WNOHANG",
    r"::flock": r"LOCK_NB|LOCK_UN",
    r"::(read|readv|write|writev)": None,
    r"::(open|openat)": r"O_NONBLOCK|O_EXCL|O_DIRECTORY|O_PATH|O_TMPFILE|/dev/null",
    r"::(fopen)|std::fopen": None,
    r"SYS_futex": r"timeout|FUTEX_WAKE",
    r"F_(OFD_)?SETLKW": None,
    r"\b\w+\.wait\(lock": None,
    r"(thread|progress|writer)\w*(\.|->)join\(": None,
}
PATTERNS = [(re.compile(r"(?<![\w:])(?:%s)(?=\W)" % call), shown and re.compile(shown))
            for call, shown in CALLS.items()]


def code_of(line):
    """The line without its comment and without texts."""
    line = re.sub(r'"(\\.|[^"\\])*"', lambda text: text.group() if "/dev/null" in text.group() else '""', line)
    return line.split("//")[0]


def whole_call(lines, at):
    """The statement from line `at` to the end of its last argument, and how many lines it takes."""
    text, depth = "", 0
    for count in range(1, 12):
        if at + count > len(lines):
            break
        code = code_of(lines[at + count - 1]).strip()
        text += " " + code
        depth += code.count("(") - code.count(")")
        if depth <= 0:
            return text, count
    return text, 1


def is_explained(lines, at, count):
    if any("bounded: " in line for line in lines[at:at + count]):
        return True
    above = at - 1
    if above >= 0 and lines[above].rstrip().endswith(("=", "(", ",")):
        above -= 1  # the statement began a line earlier
    while above >= 0 and lines[above].strip().startswith("//"):
        if "bounded: " in lines[above]:
            return True
        above -= 1
    return False


def findings(source, path):
    lines = path.read_text().splitlines()
    for at, line in enumerate(lines):
        code = code_of(line)
        for pattern, shown in PATTERNS:
            if not (found := pattern.search(code)):
                continue
            text, count = whole_call(lines, at)
            arguments = text[text.find(found.group().strip()):]
            end = re.match(r"[^(]*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", arguments)
            if shown and shown.search(end.group() if end else arguments):
                continue
            if not is_explained(lines, at, count):
                yield f"{path.relative_to(source)}:{at + 1}: {line.strip()}"


def look(source):
    """All findings below `source`, and how many files were looked at."""
    paths = [path for folder in FOLDERS for path in sorted((source / folder).rglob("*"))
             if path.suffix in (".cpp", ".hpp")]
    return [finding for path in paths for finding in findings(source, path)], len(paths)


PLANTED = """
int f(int s) { return ::recv(s, nullptr, 0, MSG_DONTWAIT); }
int g(int s) { return ::recv(s, nullptr, 0, 0); }
// bounded: the descriptor is readable
int h(int s) { return ::read(s, nullptr, 0); }
void i() { ready.wait(lock, [] { return true; }); }
int j(int s) { return ::poll(nullptr, 0,
                             -1); }
int k(int s) { return ::flock(s, LOCK_EX | LOCK_NB); }
"""


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        (source / "src").mkdir()
        (source / "src" / "planted.cpp").write_text(PLANTED)
        found, files = look(source)
        lines = [int(finding.split(":")[1]) for finding in found]
        if files != 1 or lines != [3, 6, 7]:
            sys.exit(f"planted calls in lines 3, 6 and 7, found {found}")


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    found, files = look(pathlib.Path(sys.argv[1]))
    for finding in found:
        print(finding)
    if found or files == 0:
        sys.exit(f"{len(found)} of the calls in {files} files may wait for ever: give them a deadline, "
                 "or say in a comment why they do not (`bounded: why`)")


if __name__ == "__main__":
    main()
