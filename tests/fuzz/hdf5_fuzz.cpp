// Interchange files: whatever the bytes, every case is read or there is one line of complaint. Not in a child
// process, which would hide what is looked for.

#include "base/errors.h"
#include "fuzz/memory_file.h"
#include "interchange/reader.h"

using namespace ssmbench;

namespace {

template <class Read>
void complaining_in_one_line(const Read& read) {
  try {
    read();
  } catch (const UsageError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  } catch (const OutOfMemory&) {  // within the machine's memory, but not within the fuzzer's
  }
}

}  // namespace

// The name is libFuzzer's.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::MemoryFile memory;
  const auto path = memory.holding(data, size);
  complaining_in_one_line([&] {
    const InterchangeFile file(path, Rehearsal::none);
    for (const auto& id : file.case_ids()) complaining_in_one_line([&] { file.read_case(id); });
  });
  return 0;
}
