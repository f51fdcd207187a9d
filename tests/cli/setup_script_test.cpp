// setup.sh on made-up systems: what it asks for, what it installs, and how it says no. Package tools
// and cmake are small scripts that write down how they were called; nothing real is changed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

const std::string kSetup = COLIBRI_TEST_DATA "/../setup.sh";
constexpr const char* kDebian = "ID=debian\nVERSION_ID=\"12\"\n";
constexpr const char* kUbuntu = "ID=ubuntu\nVERSION_ID=\"24.04\"\n";
constexpr const char* kOther = "ID=plan9\nVERSION_ID=4\n";

// What the build cannot do without, but for Boost, whose package differs by system.
const std::vector<std::string> kNeeded = {
    "g++",           "cmake",        "ninja-build",     "pkg-config",      "libtbb-dev",
    "libhwloc-dev",  "libnuma-dev",  "liburing-dev",    "libyaml-cpp-dev", "nlohmann-json3-dev",
    "libcli11-dev",  "libpcre2-dev", "libutf8proc-dev", "libxxhash-dev",   "libssl-dev",
    "libspdlog-dev", "libgtest-dev", "libbenchmark-dev"};

// What helps, but is not needed, as dpkg says that it is there.
const std::string kAids =
    "ccache installed\nlibtbbbind-2-5 installed\nvalgrind installed\npython3 installed\n";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class SetupScript : public testing::Test {
 protected:
  SetupScript() {
    for (const char* tool : {"bash", "cat", "dirname", "env", "grep", "nproc", "sed", "tr", "uname"}) {
      link_tool(tool);
    }
    add_script("dpkg-query", "cat '" + installed_ + "' 2>/dev/null");
    add_script("apt-get", "echo \"apt-get $*\" >> '" + calls_ + "'");
    add_script("id", "echo 0");
    set_system(kDebian);
  }

  void set_system(const std::string& os_release) {
    fs::create_directories(folder_.file("etc"));
    write_file(folder_.file("etc/os-release"), os_release);
  }

  void add_script(const std::string& name, const std::string& body) {
    fs::create_directories(bin_);
    write_file(bin_ + "/" + name, "#!/bin/sh\n" + body + "\n");
    ::chmod((bin_ + "/" + name).c_str(), 0755);
  }

  // The tool chain and all headers: enough to build, with no package manager asked.
  void add_everything_needed() {
    add_script("cmake", "echo \"cmake $*\" >> '" + calls_ + "'");
    for (const char* tool : {"c++", "ninja", "pkg-config"}) add_script(tool, "exit 0");
    for (const char* header :
         {"tbb/version.h", "hwloc.h", "numa.h", "boost/asio/random_access_file.hpp", "liburing.h",
          "yaml-cpp/yaml.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "pcre2.h", "utf8proc.h", "xxhash.h",
          "openssl/evp.h", "spdlog/spdlog.h", "gtest/gtest.h", "benchmark/benchmark.h"}) {
      const fs::path path = folder_.file("usr/include/") + header;
      fs::create_directories(path.parent_path());
      write_file(path, "");
    }
  }

  RunResult setup(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kSetup);
    RunOptions options;
    options.environment = {{"PATH", bin_}, {"COLIBRI_SETUP_ROOT", folder_.path()}, {"CXX", ""}};
    return run_program(arguments, options);
  }

  std::string calls() const { return read_file(calls_); }

  TemporaryFolder folder_;
  std::string bin_ = folder_.file("bin");
  std::string calls_ = folder_.file("calls");
  std::string installed_ = folder_.file("installed");

 private:
  void link_tool(const std::string& tool) {
    fs::create_directories(bin_);
    for (const char* place : {"/usr/bin/", "/bin/"}) {
      std::error_code error;
      if (!fs::exists(place + tool)) continue;
      fs::create_symlink(place + tool, bin_ + "/" + tool, error);
      return;
    }
    FAIL() << "no " << tool << " on this system";
  }
};

TEST_F(SetupScript, ExplainsItself) {
  const RunResult help = setup({"help"});
  EXPECT_EQ(help.status, 0);
  for (const char* word : {"build", "demo", "test --all", "--no-install", "COLIBRI_TEST_SCALE"}) {
    EXPECT_TRUE(contains(help.out, word)) << word;
  }
}

TEST_F(SetupScript, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(setup({}).status, 2);
  const RunResult command = setup({"biuld"});
  EXPECT_EQ(command.status, 2);
  EXPECT_TRUE(contains(command.err, "unknown command: biuld")) << command.err;
  const RunResult argument = setup({"build", "--all"});
  EXPECT_EQ(argument.status, 2);
  EXPECT_TRUE(contains(argument.err, "unknown argument for build: --all")) << argument.err;
  EXPECT_EQ(calls(), "");
}

TEST_F(SetupScript, NoInstallListsAllThatIsMissingAtOnce) {
  const RunResult result = setup({"build", "--no-install"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  for (const std::string& package : kNeeded) {
    EXPECT_TRUE(contains(result.err, " " + package)) << package << " not in: " << result.err;
  }
  EXPECT_TRUE(contains(result.err, "libboost1.81-dev")) << result.err;
  EXPECT_EQ(calls(), "");
}

TEST_F(SetupScript, NoInstallBuildsWhenAllIsThere) {
  add_everything_needed();
  const RunResult result = setup({"build", "--no-install"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(calls(), "cmake --build build/release")) << calls();
  EXPECT_FALSE(contains(calls(), "apt-get")) << calls();
}

TEST_F(SetupScript, NamesTheBoostOfTheSystem) {
  set_system(kUbuntu);
  const RunResult result = setup({"build", "--no-install"});
  EXPECT_TRUE(contains(result.err, "libboost1.83-dev")) << result.err;
}

TEST_F(SetupScript, InstallsOnlyWhatIsMissingAndSaysItFirst) {
  add_everything_needed();
  std::string installed;
  for (const std::string& package : kNeeded) {
    if (package != "liburing-dev") installed += package + " installed\n";
  }
  write_file(installed_, installed + kAids + "libboost1.81-dev config-files\n");
  const RunResult result = setup({"build"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "missing packages: libboost1.81-dev liburing-dev\n")) << result.err;
  EXPECT_LT(result.err.find("missing packages"), result.err.find("installing them"));
  EXPECT_TRUE(
      contains(calls(), "apt-get install -q -y --no-install-recommends libboost1.81-dev liburing-dev\n"))
      << calls();
  EXPECT_TRUE(contains(calls(), "--target colibri")) << calls();
}

TEST_F(SetupScript, InstallsNothingTwice) {
  add_everything_needed();
  std::string installed = kAids + "libboost1.81-dev installed\n";
  for (const std::string& package : kNeeded) installed += package + " installed\n";
  write_file(installed_, installed);
  const RunResult result = setup({"build"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(contains(calls(), "apt-get")) << calls();
}

TEST_F(SetupScript, WithoutRootGivesTheExactCommand) {
  add_script("id", "echo 1000");
  const RunResult without_sudo = setup({"build"});
  EXPECT_EQ(without_sudo.status, 2);
  EXPECT_TRUE(contains(without_sudo.err, "sudo apt-get install -y --no-install-recommends g++ cmake"))
      << without_sudo.err;
  // A sudo that wants a password is no way either: nobody may be there to type it.
  add_script("sudo", "exit 1");
  EXPECT_EQ(setup({"build"}).status, 2);
  EXPECT_EQ(calls(), "");
}

TEST_F(SetupScript, UsesSudoThatAsksForNoPassword) {
  add_everything_needed();
  add_script("id", "echo 1000");
  add_script("sudo", "echo \"sudo $*\" >> '" + calls_ + "'");
  EXPECT_EQ(setup({"build"}).status, 0);
  EXPECT_TRUE(contains(calls(), "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install")) << calls();
}

TEST_F(SetupScript, WithoutRootGoesOnWhenOnlyAidsAreMissing) {
  add_everything_needed();
  add_script("id", "echo 1000");
  const RunResult result = setup({"build"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(calls(), "cmake --build")) << calls();
}

TEST_F(SetupScript, OtherSystemsAreToldWhatIsMissing) {
  set_system(kOther);
  const RunResult missing = setup({"build"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(contains(missing.err, "this system is: plan9 4")) << missing.err;
  EXPECT_TRUE(contains(missing.err, "libyaml-cpp-dev")) << missing.err;
  EXPECT_EQ(calls(), "");
  add_everything_needed();
  EXPECT_EQ(setup({"build"}).status, 0);
  EXPECT_FALSE(contains(calls(), "apt-get")) << calls();
}

}  // namespace
}  // namespace colibri::test
