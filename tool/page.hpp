// tool/page.hpp - a page of web/ as one file: skeleton, style, scripts and data.
#pragma once

#include <span>
#include <string>

namespace tutti::tool {

// Names of embedded files (tool/embedded.hpp).
struct PageFiles {
  const char* html;
  const char* css;  // beside style.css, which all pages have
  std::span<const char* const> scripts;
};

// `data` is JSON. `title` is for pages that have a mark for one.
std::string assemble_page(const PageFiles& files, std::string data, const std::string& title = "");

}  // namespace tutti::tool
