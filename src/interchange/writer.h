#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "interchange/file_info.h"
#include "model/arithmetic.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// One case as it goes into a file.
struct CaseToWrite {
  std::string id;  ///< the name of its group: not empty, no '/'
  const Problem& problem;
  Arithmetic arithmetic = {};  ///< what made the outputs
  std::optional<std::int64_t> seed;
  TensorSet inputs;   ///< host tensors, all that the problem has
  TensorSet outputs;  ///< host tensors, any subset of the problem's
  /// fp64 outputs in logical order, any subset; lie in the file in the order of the layout, like the outputs.
  std::map<std::string, std::span<const double>> reference;
};

/// Writes an interchange file (version 1) under a temporary name in the same folder; finish() gives it its
/// own. Without finish() nothing is left behind.
class InterchangeWriter {
 public:
  /// `compress`: datasets past 64 KiB are chunked, shuffled and gzipped. Throws UsageError when the path
  /// exists or cannot be created, OutputError when the disk is full.
  InterchangeWriter(const std::filesystem::path& path, const FileInfo& info, bool compress);
  ~InterchangeWriter();
  InterchangeWriter(const InterchangeWriter&) = delete;
  InterchangeWriter& operator=(const InterchangeWriter&) = delete;

  /// Throws ContractError when tensors do not fit the problem or the id is taken (nothing is written then),
  /// and OutputError when the disk does not take them; the file is lost then.
  void add_case(const CaseToWrite& the_case);
  /// Copies all cases of another file that this build wrote. Throws as add_case does.
  void add_cases_of(const std::filesystem::path& other);
  /// Throws OutputError, or UsageError when the path has been taken meanwhile. At most once.
  void finish();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ssmbench
