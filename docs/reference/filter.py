#!/usr/bin/env python3
"""What Doxygen reads in place of a header: its plain comments as Doxygen's own.

The headers are written for people: `//` above a declaration or behind it, a table of terms in the opening
comment, indented examples, lists that are included. This prints the same header with

    // tutti/x.hpp - what it is         a file's page
    // Term       what holds            a paragraph under that term
    //   indented                       text as it stands
    // ---- some methods                a heading over the members that follow
    // above functions without a gap    the text of each of them
    #include "tutti/x.def"              its rows, as the macro before it writes them

Usage: filter.py HEADER
"""
import re
import sys
from pathlib import Path

INCLUDE_ROOT = Path(__file__).resolve().parents[2] / "include"
MAIN_PAGE = Path(__file__).with_name("main.md")
TERM = re.compile(r"([A-Z][\w-]+)  +(\S.*)")
FUNCTION = re.compile(r"\w\(.*\)\s*(?:const)?&*\s*(?:noexcept)?\s*(?:= \w+)?\s*(?:[;{].*)$")
NAME = re.compile(r"(?:\btutti_)?(operator[^\w\s]+|~?\w+)\(")
SECTION = re.compile(r"---- (.*?)(?: ----)?$")


def as_line_comments(text):
    """C's comments as C++'s, so that the rest need know one kind only."""
    def convert(match):
        lines = match.group(1).strip().split("\n")
        return "\n".join("// " + re.sub(r"^ \* ?", "", line) if line.strip(" *") else "//" for line in lines)
    return re.sub(r"/\*(.*?)\*/", convert, text, flags=re.S)


def expand_lists(text):
    """#define M(a, b) text / #include "x.def" / #undef M: one line per row of x.def."""
    pattern = re.compile(r"(?:^ *//[^\n]*\n)?"  # a comment on the list
                         r"^#define (\w+)\(([^)]*)\) *((?:[^\n]*\\\n)*[^\n]*)\n"
                         r'#include "([^"]+\.def)"\n#undef \1\n', re.M)

    def write(match):
        macro, parameters, body, path = match.groups()
        names = [name.strip() for name in parameters.split(",")]
        body = body.replace("\\\n", "").strip()
        lines = []
        for row in re.findall(rf"^{macro}\((.*)\)$", (INCLUDE_ROOT / path).read_text(encoding="utf-8"), re.M):
            line = body
            for name, value in zip(names, (word.strip() for word in row.split(","))):
                line = re.sub(rf"(?:##)?\b{re.escape(name)}\b(?:##)?", value, line) if name != "..." else line
            lines.append("  " + line + "\n")
        return "".join(lines)
    return pattern.sub(write, text)


def escape(text):
    """Prose in which Doxygen is to find no command; `code` stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\@#%]|--)", r"\\\1", parts[i].replace("&", "&amp;"))
        parts[i] = parts[i].replace("<", "&lt;").replace(">", "&gt;")
    return "".join(parts)


def sentence(text):
    """With a capital, unless it begins with somebody's name."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z-]+(?:[ ,.:]|$)", text) else text


def prose(lines):
    """Paragraphs, terms and indented blocks, as Doxygen writes them."""
    out, block, in_term = [], [], False

    def end_block():
        if block:
            kind = ".cpp" if any(";" in line for line in block) else ".unparsed"
            out.extend([f"@code{{{kind}}}", *"\n".join(block).rstrip().split("\n"), "@endcode"])
            block.clear()

    for line in lines:
        term = TERM.fullmatch(line)
        if not line.strip():
            in_term = False
            (block if block else out).append("")
        elif line.startswith("  ") and not in_term:
            block.append(line)
        else:
            end_block()
            in_term = in_term or bool(term)
            if term:
                out.extend(["", f"@par {term.group(1)}"])
            out.append(escape(sentence(term.group(2)) if term else line.strip()))
    end_block()
    return out


def documentation(lines, indent=""):
    return [indent + "/** " + lines[0]] + [f"{indent} {line}" for line in lines[1:]] + [indent + " */"]


class Body:
    """The header behind its opening comment, line by line."""

    def __init__(self, main_type, main_prose):
        self.main_type, self.main_prose = main_type, main_prose
        self.out = []
        self.comment = []      # own lines of comment that wait for what they are about
        self.shared = None     # what was said of the functions above, without a gap to them, and their names
        self.statement = ""    # what has begun and not ended
        self.depth = 0         # of braces inside a function
        self.section = None    # indentation of the heading that is open

    def line(self, line):
        indent = line[:len(line) - len(line.lstrip())]
        text = line.strip()
        if self.depth > 0:
            return self.inside(line)
        if text.startswith("//"):
            self.comment.append(text[2:].removeprefix(" "))
            return None
        if not text or text.startswith("#"):
            return self.gap(line, indent)
        if self.section is not None and re.match(r"\}(?:;|\s*//|$)", text):
            self.close_section()  # with the class, or with what is C's
        return self.code(line, indent)

    def gap(self, line, indent):
        if self.comment and SECTION.match(self.comment[0]):
            self.heading(indent)
        self.comment, self.shared = [], None
        self.out.append(line)

    def heading(self, indent):
        self.close_section()
        title, *rest = self.comment
        self.out += documentation([f"@name {escape(sentence(SECTION.match(title).group(1)))}", *prose(rest)], indent)
        self.out.append(indent + "///@{")
        self.comment, self.section = [], indent

    def close_section(self):
        if self.section is not None:
            self.out.append(self.section + "///@}")
            self.section = None

    def code(self, line, indent):
        code, _, behind = line.partition("  // ") if "  // " in line else line.partition(" // ")
        begins = not self.statement
        if begins and self.comment and SECTION.match(self.comment[0]):
            title, self.comment = self.comment[:1], self.comment[1:]
            above, self.comment = self.comment, title
            self.heading(indent)
            self.comment = above
        if begins:
            self.place, self.indent = len(self.out), indent
        if code.lstrip().startswith("}"):
            behind = ""  # what has ended, for people who read the source
        self.statement += " " + code.strip()
        self.out.append(code + (f"  ///< {escape(behind)}" if behind else ""))
        is_closed = self.statement.count("(") == self.statement.count(")")
        if is_closed and code.rstrip().endswith((";", "{", "}", ",", ":")):
            self.end_statement(bool(behind))

    def end_statement(self, has_own):
        statement, self.statement = self.statement.strip(), ""
        is_other = statement.startswith(("using", "typedef", "static_assert"))
        is_function = not is_other and FUNCTION.search(statement) is not None
        name = NAME.search(statement).group(1) if is_function else ""
        if self.comment:
            said = prose(self.comment)
        elif self.shared and is_function and not has_own and self.is_meant(name):
            said = self.shared[0]
        else:
            said = self.main_prose if self.main_type.fullmatch(statement) else None
        if said:
            self.out[self.place:self.place] = documentation(said, self.indent)
        names = self.shared[1] if self.shared and not self.comment else []
        self.comment, self.shared = [], (said, names + [name]) if is_function and said else None
        if is_function:
            self.depth = max(0, statement.count("{") - statement.count("}"))

    def is_meant(self, name):
        """Whether what was said of the functions above is said of this one: x_async behind x, or it names it."""
        said, others = self.shared
        return any(name in other or other in name for other in others) or \
            re.search(rf"\b{re.escape(name[:3])}", " ".join(said), re.IGNORECASE) is not None

    def inside(self, line):
        code = line.partition("//")[0].rstrip()
        self.depth += code.count("{") - code.count("}")
        self.out.append(code)


def opening(lines):
    """The first comment: `tutti/x.hpp - what it is`, then the rest."""
    _, _, brief = lines[0].partition(" - ")
    end = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
    brief = " ".join([brief] + [line.strip() for line in lines[1:end]])
    return ["@brief " + escape(sentence(brief)), *prose(lines[end:])]


def main_type(path):
    """data_parallel.hpp is about DataParallel: what opens the one tells of the other."""
    name = "".join(part.capitalize() for part in path.stem.split("_"))
    return re.compile(rf"(?:template <.*> )?(?:class|struct)(?: \[\[\w+\]\])? {name}\b[^;]*\{{")


def main():
    path = Path(sys.argv[1])
    text = expand_lists(as_line_comments(path.read_text(encoding="utf-8")))
    text = re.sub(r" *\\\n *", " ", text)
    # The version's namespace is no part of any name that a user writes.
    text = re.sub(r"^inline namespace .* v1 \{\n|^\}  // namespace v1\n", "", text, flags=re.M)
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    said = opening([line[2:].removeprefix(" ") for line in lines[:first]])
    out = documentation(["@file " + "/".join(path.parts[path.parts.index("tutti"):]), *said])
    body = Body(main_type(path), said)
    for line in lines[first:]:
        body.line(line)
    body.close_section()
    if path.name == "tutti.hpp":  # "everything": the first page is told here, or it would be listed as a header
        out += documentation(["@mainpage tutti", *MAIN_PAGE.read_text(encoding="utf-8").split("\n")])
    print("\n".join(out + body.out))


if __name__ == "__main__":
    main()
