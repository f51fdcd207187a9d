// The pass over the input before anything runs.
#include "io/text/request_scan.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/jobs/temporary_folder.hpp"

namespace colibri {
namespace {

std::string line(const std::string& id) { return R"({"id":")" + id + R"(","tokens":[1]})" + "\n"; }

std::string scan_error(const std::string& content) {
  TemporaryFolder folder;
  return scan_requests(folder.write("in", content)).status().to_string();
}

TEST(RequestScan, StopsWhenItIsAsked) {
  TemporaryFolder folder;
  const std::string file = folder.write("in", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n");
  int asked = 0;
  EXPECT_EQ(scan_requests(file, [&asked] { return ++asked == 2; }).status().code(), ErrorCode::cancelled);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(scan_requests(file, [] { return false; }).is_ok());
}

TEST(RequestScan, CountsLines) {
  TemporaryFolder folder;
  const std::string content = line("a") + "\n" + line("b") + "not json\n" + line("c");
  const auto scan = scan_requests(folder.write("in", content));
  ASSERT_TRUE(scan.is_ok()) << scan.status().to_string();
  EXPECT_EQ(scan->lines, 5U);
  EXPECT_EQ(scan->requests, 4U);
  EXPECT_EQ(scan->bytes, content.size());
}

TEST(RequestScan, DigestFollowsRequestsNotLineEndings) {
  TemporaryFolder folder;
  const auto digest = [&](const std::string& content) {
    return scan_requests(folder.write("in", content))->digest;
  };
  const Hash128 base = digest("{\"id\":1}\n{\"id\":2}\n");
  EXPECT_EQ(base, digest("{\"id\":1}\r\n{\"id\":2}"));
  EXPECT_NE(base, digest("{\"id\":1}\n{\"id\":3}\n"));
  EXPECT_NE(base, digest("{\"id\":1}\n\n{\"id\":2}\n"));
  EXPECT_NE(base, digest("{\"id\":1}\n"));
}

TEST(RequestScan, NamesRepeatedIds) {
  EXPECT_EQ(
      scan_error(line("a") + line("x") + "\n" + line("b") + line("x")),
      "ids must differ, lines counted from 0: id \"x\" appears in lines 1 and 4; give each line its own id");
  EXPECT_EQ(scan_error(line("b") + line("a") + line("a") + line("b") + line("b")),
            "ids must differ, lines counted from 0: id \"b\" appears in lines 0, 3 and 4; id \"a\" appears "
            "in lines "
            "1 and 2; give each line its own id");
}

TEST(RequestScan, IdsOfAllKindsShareOneSpace) {
  EXPECT_NE(scan_error("{\"id\":5}\n{\"custom_id\":\"5\",\"method\":\"POST\",\"url\":\"/\",\"body\":{}}\n"),
            "ok");
  EXPECT_NE(scan_error("{\"tokens\":[1]}\n{\"id\":\"0\"}\n"), "ok")
      << "a line without id is called by its number";
  EXPECT_EQ(scan_error("{\"tokens\":[1]}\n{\"tokens\":[1]}\nbroken\nbroken\n"), "ok");
}

TEST(RequestScan, ListsTheFirstTen) {
  std::string content;
  for (int i = 0; i < 12; ++i) content += line("id" + std::to_string(i));
  for (int i = 0; i < 12; ++i) content += line("id" + std::to_string(i));
  for (int i = 0; i < 12; ++i) content += line("many");
  const std::string error = scan_error(content);
  EXPECT_NE(error.find("id \"id9\" appears in lines 9 and 21; and 3 more ids; give"), std::string::npos)
      << error;
}

TEST(RequestScan, RefusesAPipe) {
  EXPECT_EQ(scan_requests("/dev/null").status().to_string(),
            "this input can be read only once, so it cannot be checked first: '/dev/null'; use a file");
}

TEST(IdSet, TellsRepeats) {
  IdSet ids;
  EXPECT_TRUE(ids.insert("a"));
  EXPECT_TRUE(ids.insert("b"));
  EXPECT_FALSE(ids.insert("a"));
}

}  // namespace
}  // namespace colibri
