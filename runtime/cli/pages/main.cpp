// Part of the build: writes the manual page and the shells' completion into a folder.
//
//   colibri_pages FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/cli/pages/command_tree.hpp"

namespace {

bool write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  stream.close();
  if (stream.fail()) std::fprintf(stderr, "colibri_pages: cannot write %s\n", file.c_str());
  return !stream.fail();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: colibri_pages FOLDER\n", stderr);
    return 2;
  }
  const colibri::cli::VerbPage program = colibri::cli::read_command_line();
  const std::filesystem::path folder = argv[1];
  std::error_code ignored;  // a folder that cannot be made shows when files are written
  std::filesystem::create_directories(folder, ignored);
  const bool written = write(folder / "colibri.1", manual_page(program, COLIBRI_VERSION)) &&
                       write(folder / "colibri.bash", bash_completion(program)) &&
                       write(folder / "_colibri", zsh_completion(program)) &&
                       write(folder / "colibri.fish", fish_completion(program));
  return written ? 0 : 1;
}
