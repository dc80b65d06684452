#include "tool/web_page.hpp"

#include "core/check.hpp"
#include "tool/embedded.hpp"

namespace tutti::tool {
namespace {

std::string web_part(std::string_view name) {
  const std::string_view text = embedded_file(name);
  TUTTI_CHECK(!text.empty());
  return std::string(text);
}

void fill_in(std::string& page, std::string_view mark, std::string_view text) {
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

std::string assemble(const WebPage& page) {
  std::string text = web_part(page.skeleton);
  std::string style = web_part("style.css"), script;
  for (const char* name : page.styles) style += web_part(name);
  for (const char* name : page.scripts) script += web_part(name) + "\n";
  if (!page.title.empty()) fill_in(text, "<!--TITLE-->", page.title);
  fill_in(text, "/*STYLE*/", style);
  fill_in(text, "/*DATA*/", harmless(page.data));
  fill_in(text, "/*SCRIPT*/", script);
  return text;
}

}  // namespace tutti::tool
