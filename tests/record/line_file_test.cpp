#include "record/line_file.h"

#include "base/errors.h"
#include "catch.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("each record is on disk when append returns") {
  const TemporaryFolder folder;
  LineFile file(folder / "x.jsonl");
  file.append("one");
  CHECK(read_file(folder / "x.jsonl") == "one\n");
  file.append("two");
  CHECK(read_file(folder / "x.jsonl") == "one\ntwo\n");
}

TEST_CASE("an existing file is refused and left alone, a device is not") {
  const TemporaryFolder folder;
  folder.write("x", "old");
  CHECK_THROWS_AS(LineFile(folder / "x"), UsageError);
  CHECK(read_file(folder / "x") == "old");
  CHECK_NOTHROW(LineFile("/dev/null").append("x"));
}

TEST_CASE("a file that is removed while it is written is an error, not a loss that nobody sees") {
  const TemporaryFolder folder;
  LineFile file(folder / "x");
  file.append("one");
  std::filesystem::rename(folder / "x", folder / "y");
  CHECK_NOTHROW(file.append("two"));  // it is somewhere
  std::filesystem::remove(folder / "y");
  CHECK_THROWS_AS(file.append("three"), OutputError);
  folder.write("z", "zero\n");
  LineFile continued(folder / "z", 5);
  std::filesystem::remove(folder / "z");
  CHECK_THROWS_AS(continued.append("one"), OutputError);
}
