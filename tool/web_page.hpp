// tool/web_page.hpp - a page of web/ as one file: skeleton, style, script and data pasted together.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool {

struct WebPage {
  const char* skeleton = "";          // "show.html": it has marks for the rest
  std::string title{};                // where the skeleton leaves room for one
  std::vector<const char*> styles{};  // after style.css, which every page has
  std::vector<const char*> scripts{};
  std::string data{};  // JSON
};
std::string assemble(const WebPage& page);

}  // namespace tutti::tool
