#include "tests/docs/markdown.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace colibri::test {
namespace {

void add_spans(const std::string& line, std::vector<std::string>& spans) {
  std::size_t begin = line.find('`');
  while (begin != std::string::npos) {
    const std::size_t end = line.find('`', begin + 1);
    if (end == std::string::npos) return;
    spans.push_back(line.substr(begin + 1, end - begin - 1));
    begin = line.find('`', end + 1);
  }
}

}  // namespace

std::vector<Block> Page::blocks_in(const std::string& language) const {
  std::vector<Block> found;
  std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(found),
               [&language](const Block& block) { return block.language == language; });
  return found;
}

Page parse_page(const std::string& text) {
  Page page;
  std::istringstream input(text);
  bool inside = false;
  for (std::string line; std::getline(input, line);) {
    ++page.lines;
    if (line.starts_with("```")) {
      if (!inside) page.blocks.push_back({line.substr(3), "", page.lines});
      inside = !inside;
    } else if (inside) {
      page.blocks.back().text += line + "\n";
    } else {
      add_spans(line, page.spans);
    }
  }
  return page;
}

}  // namespace colibri::test
