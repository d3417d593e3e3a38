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

TEST_CASE("an existing file is refused and left alone; a device is not") {
  const TemporaryFolder folder;
  folder.write("x", "old");
  CHECK_THROWS_AS(LineFile(folder / "x"), UsageError);
  CHECK(read_file(folder / "x") == "old");
  CHECK_NOTHROW(LineFile("/dev/null").append("x"));
}
