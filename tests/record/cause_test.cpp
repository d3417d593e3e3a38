#include "record/cause.h"

#include <fmt/format.h>

#include <new>
#include <set>

#include "base/errors.h"
#include "catch.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("every cause has a word of its own, which is read back") {
  std::set<std::string_view> words;
  for (const Cause cause : kAllCauses) {
    CHECK(words.insert(name_of(cause)).second);
    CHECK(cause_named(name_of(cause)) == cause);
  }
  CHECK(words.size() == static_cast<std::size_t>(Cause::inapplicable) + 1);  // none is left out
  CHECK_FALSE(cause_named("no such cause"));
  CHECK_FALSE(cause_named(""));
}

TEST_CASE("docs/causes.md explains every cause and no other word") {
  const std::string page = read_file(SSMBENCH_SOURCE_DIR "/docs/causes.md");
  std::set<std::string> explained;
  for (std::size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1))
    explained.insert(page.substr(at + 4, page.find('`', at + 4) - at - 4));
  std::set<std::string> causes;
  for (const Cause cause : kAllCauses) causes.emplace(name_of(cause));
  CHECK(explained == causes);
}

TEST_CASE("exceptions have causes by their type") {
  CHECK(explain(OutOfMemory("full")).cause == Cause::out_of_memory);
  CHECK(explain(std::bad_alloc()).cause == Cause::out_of_memory);
  CHECK(explain(std::bad_alloc()).reason == "out of host memory");
  CHECK(explain(DeviceError("broken")).cause == Cause::device_error);
  CHECK(explain(ContractError("rank 2")).cause == Cause::contract);
  CHECK(explain(std::runtime_error("gave up")).cause == Cause::exception);
  CHECK(explain(std::runtime_error("gave up")).reason == "gave up");
}
