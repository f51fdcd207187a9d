// The parts of a Markdown page that can be checked: fenced blocks and code spans.
#pragma once

#include <string>
#include <vector>

namespace colibri::test {

struct Block {
  std::string language;  // the word after the fence; may be empty
  std::string text;      // with the final newline
  int line = 0;          // of the opening fence, from 1
};

struct Page {
  std::vector<Block> blocks;
  std::vector<std::string> spans;  // `code` outside of blocks
  int lines = 0;

  std::vector<Block> blocks_in(const std::string& language) const;
};

Page parse_page(const std::string& text);

}  // namespace colibri::test
