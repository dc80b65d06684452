#include "tool/page.hpp"

#include "core/check.hpp"
#include "tool/embedded.hpp"

namespace tutti::tool {
namespace {

std::string file_part(std::string_view name) {
  const std::string_view text = embedded_file(name);
  TUTTI_CHECK(!text.empty());
  return std::string(text);
}

void fill_mark(std::string& page, std::string_view mark, std::string_view text) {
  const std::size_t at = page.find(mark);
  TUTTI_CHECK(at != std::string::npos);
  page.replace(at, mark.size(), text);
}

// Nothing in it may end the script element that holds it.
std::string harmless(std::string text) {
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

std::string assemble_page(const PageFiles& files, std::string data, const std::string& title) {
  std::string script;
  for (const char* name : files.scripts) script += file_part(name) + "\n";
  std::string page = file_part(files.html);
  if (!title.empty()) fill_mark(page, "<!--TITLE-->", title);
  fill_mark(page, "/*STYLE*/", file_part("style.css") + file_part(files.css));
  fill_mark(page, "/*SCRIPT*/", script);
  fill_mark(page, "/*DATA*/", harmless(std::move(data)));
  return page;
}

}  // namespace tutti::tool
