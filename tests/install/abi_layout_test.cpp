// The layout of what colibri.h declares, as a C compiler sees it: sizes of structs, offsets of
// fields, values of constants. The names are read out of the header, so that none is left out.
// A change breaks hosts that are compiled already: raise COLIBRI_ABI_VERSION, then rewrite with
//   COLIBRI_REWRITE_BASELINE=1 build/release/bin/abi_layout_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

constexpr const char* kRewrite = "COLIBRI_REWRITE_BASELINE=1 build/release/bin/abi_layout_test";

std::vector<std::smatch> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()};
}

std::string line_of(const std::string& name, const std::string& value) {
  return "  printf(\"" + name + " %lld\\n\", (long long)" + value + ");\n";
}

// A C program that prints everything of the header.
std::string program_for(const std::string& header) {
  const std::string code = std::regex_replace(header, std::regex("/\\*[^*]*\\*+([^/*][^*]*\\*+)*/"), "");
  std::string prints = line_of("COLIBRI_ABI_VERSION", "COLIBRI_ABI_VERSION");
  for (const std::smatch& found : matches(code, "enum\\s*\\{([^}]*)\\}")) {
    const std::string constants = found[1];
    for (const std::smatch& constant : matches(constants, "(COLIBRI_\\w+)\\s*=")) {
      prints += line_of(constant[1], constant[1]);
    }
  }
  for (const std::smatch& found : matches(code, "typedef struct (\\w+) \\{([^}]*)\\}")) {
    const std::string name = found[1], body = found[2];
    prints += line_of("sizeof(" + name + ")", "sizeof(" + name + ")");
    // "double wall_seconds", "char message[1024]", "void *(*allocate)(void *user, ...)"
    for (const std::smatch& field :
         matches(body, "(?:\\(\\*(\\w+)\\)\\([^;]*\\)|(\\w+)(?:\\[\\w+\\])?)\\s*;")) {
      const std::string label = name + "." + (field[1].matched ? field[1].str() : field[2].str());
      prints += line_of(label, "offsetof(" + name + ", " + label.substr(name.size() + 1) + ")");
    }
  }
  return "#include <colibri/colibri.h>\n#include <stdio.h>\nint main(void) {\n" + prints + "  return 0;\n}\n";
}

class AbiLayout : public ::testing::Test {
 protected:
  // Whether the header alone is accepted by this compiler with these flags.
  RunResult compile(const std::vector<std::string>& compiler, const std::string& source) const {
    std::vector<std::string> command = compiler;
    command.insert(command.end(), {"-pedantic", "-Wall", "-Wextra", "-Werror", "-I", COLIBRI_INCLUDE, source,
                                   "-o", folder_.file("layout")});
    return run_program(command);
  }

  TemporaryFolder folder_;
};

TEST_F(AbiLayout, IsWhatTheFileSays) {
  const std::string program = folder_.file("layout.c");
  write_file(program, program_for(read_file(COLIBRI_INCLUDE "/colibri/colibri.h")));
  const RunResult compiled = compile({COLIBRI_C, "-std=c99"}, program);
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  const RunResult printed = run_program({folder_.file("layout")});
  ASSERT_EQ(printed.status, 0);
  const std::string file = std::string(COLIBRI_TEST_DATA) + "/install/abi_layout.txt";
  if (std::getenv("COLIBRI_REWRITE_BASELINE") != nullptr) {
    write_file(file, printed.out);
    GTEST_SKIP() << "wrote " << file;
  }
  EXPECT_EQ(printed.out, read_file(file)) << "Hosts that are compiled already would go wrong. If it is meant "
                                             "to be so, raise COLIBRI_ABI_VERSION and "
                                             "rewrite the file: "
                                          << kRewrite;
  for (const char* part :
       {"sizeof(colibri_error) ", "colibri_error.message ", "colibri_allocator.allocate "}) {
    EXPECT_NE(printed.out.find(part), std::string::npos) << part;
  }
}

TEST_F(AbiLayout, HeaderIsCAndCplusplus) {
  for (const std::vector<std::string>& compiler :
       std::vector<std::vector<std::string>>{{COLIBRI_C, "-std=c99"},
                                             {COLIBRI_C, "-std=c17"},
                                             {COLIBRI_CXX, "-std=c++11"},
                                             {COLIBRI_CXX, "-std=c++20"}}) {
    const std::string source = folder_.file(compiler.front() == COLIBRI_C ? "header.c" : "header.cpp");
    write_file(source,
               "#include <colibri/colibri.h>\nint main(void) { return (int)sizeof(colibri_error) == 0; }\n");
    const RunResult compiled = compile(compiler, source);
    EXPECT_EQ(compiled.status, 0) << compiler[1] << "\n" << compiled.err;
  }
}

}  // namespace
}  // namespace colibri::test
