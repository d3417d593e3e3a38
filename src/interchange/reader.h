#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interchange/file_info.h"
#include "model/arithmetic.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// One case as it was read.
struct CaseRead {
  std::string id;
  Problem problem;
  Arithmetic arithmetic;  ///< what the producer claims
  std::optional<std::int64_t> seed;
  std::vector<HostTensor> inputs;   ///< all that the problem has
  std::vector<HostTensor> outputs;  ///< those that the file has
};

/// HDF5 may crash or hang on a damaged file. Rehearsed, everything is read by a child process first, and such
/// a file is rejected like any other that is damaged.
enum class Rehearsal { in_child, none };

/// For readers that nothing interrupts.
inline const std::atomic<bool> kNeverStop{false};

/// An interchange file (version 1), open for reading. Nothing in it is guessed: whatever is missing, unknown
/// or does not fit throws UsageError with file, case and dataset on one line. Nothing outside of the file is
/// ever opened: external links, virtual datasets and external storage are refused.
class InterchangeFile {
 public:
  /// `stop` ends a rehearsal, with Interrupted, and has to outlive the object.
  explicit InterchangeFile(const std::filesystem::path& path, Rehearsal rehearsal = Rehearsal::in_child,
                           const std::atomic<bool>& stop = kNeverStop);
  ~InterchangeFile();
  InterchangeFile(InterchangeFile&&) noexcept;
  InterchangeFile& operator=(InterchangeFile&&) noexcept;

  const FileInfo& info() const;
  const std::vector<std::string>& case_ids() const;  ///< sorted
  /// Also checks the fp64 reference, where there is one, for names, shapes and dtypes. Throws OutOfMemory
  /// too.
  CaseRead read_case(const std::string& id) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ssmbench
