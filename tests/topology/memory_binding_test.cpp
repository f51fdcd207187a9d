// Memory bound to nodes, read back from the kernel page by page.
#include "topology/memory_binding.hpp"

#include <gtest/gtest.h>
#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "topology/machine.hpp"

namespace colibri {
namespace {

class MemoryBindingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto machine = read_machine();
    ASSERT_TRUE(machine.is_ok());
    node_ = machine->nodes.back().index;
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kPages * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    madvise(memory_, kPages * page_, MADV_NOHUGEPAGE);
    int mode = 0;
    if (get_mempolicy(&mode, nullptr, 0, memory_, MPOL_F_ADDR) != 0)
      GTEST_SKIP() << "this kernel has no policies";
  }
  void TearDown() override { munmap(memory_, kPages * page_); }

  // Policy and nodes that the kernel holds for a page.
  std::pair<int, unsigned long> policy(std::size_t page) const {
    int mode = -1;
    unsigned long nodes[16] = {};
    EXPECT_EQ(get_mempolicy(&mode, nodes, sizeof nodes * 8, memory_ + page * page_, MPOL_F_ADDR), 0);
    return {mode, nodes[0]};
  }
  // Node of a page; negative: it is not there.
  int node_of(std::size_t page) const {
    void* address = memory_ + page * page_;
    int node = -1;
    EXPECT_EQ(move_pages(0, 1, &address, nullptr, &node, 0), 0);
    return node;
  }

  static constexpr std::size_t kPages = 16;
  const std::size_t page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::byte* memory_ = nullptr;
  std::uint32_t node_ = 0;
};

TEST_F(MemoryBindingTest, PagesComeFromTheNode) {
  const Status bound = bind_memory(memory_, kPages * page_, std::vector{node_});
  if (!bound) GTEST_SKIP() << bound.to_string();
  EXPECT_EQ(policy(0), std::pair(int{MPOL_PREFERRED}, 1UL << node_));
  EXPECT_LT(node_of(3), 0);  // nothing was touched by binding
  std::memset(memory_, 1, kPages * page_);
  for (std::size_t page = 0; page < kPages; ++page) EXPECT_EQ(node_of(page), static_cast<int>(node_));
}

TEST_F(MemoryBindingTest, OnlyWholePagesInside) {
  const Status bound = bind_memory(memory_ + 1, 3 * page_, std::vector{node_});
  if (!bound) GTEST_SKIP() << bound.to_string();
  EXPECT_EQ(policy(0).first, MPOL_DEFAULT);
  EXPECT_EQ(policy(1).first, MPOL_PREFERRED);
  EXPECT_EQ(policy(2).first, MPOL_PREFERRED);
  EXPECT_EQ(policy(3).first, MPOL_DEFAULT);
  // Less than a page, or nowhere to bind to: nothing is done.
  EXPECT_TRUE(bind_memory(memory_ + 8 * page_ + 1, page_, std::vector{node_}).is_ok());
  EXPECT_TRUE(bind_memory(memory_ + 8 * page_, 2 * page_, {}).is_ok());
  for (std::size_t page = 8; page < 11; ++page) EXPECT_EQ(policy(page).first, MPOL_DEFAULT);
}

TEST_F(MemoryBindingTest, NodesThatAreNotThereAreAnError) {
  const Status missing = bind_memory(memory_, page_, std::vector<std::uint32_t>{1023});
  EXPECT_EQ(missing.code(), ErrorCode::io);
  EXPECT_NE(missing.message().find("memory could not be bound to NUMA nodes 1023: "), std::string::npos)
      << missing.message();
  EXPECT_EQ(bind_memory(memory_, page_, std::vector<std::uint32_t>{1024}).code(), ErrorCode::invalid_input);
}

}  // namespace
}  // namespace colibri
