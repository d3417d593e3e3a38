#pragma once

#include <omp.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

namespace ssmbench::test {

/// A config of linear_scan cases that differ in their length alone.
inline std::string config(const TemporaryFolder& folder, const std::string& lengths) {
  return folder.write("scan.json",
                      R"({"format": "ssmbench-config/1", "sweeps": [{"op": "linear_scan", "axes": {"batch": 1,
                          "dim": 1, "dtype": "f32", "seqlen": [)" +
                          lengths + "]}}]}");
}

/// "5, 6, 7" from 5 to 7.
inline std::string lengths(int from, int to) {
  std::string all = std::to_string(from);
  for (int length = from + 1; length <= to; ++length) all += ", " + std::to_string(length);
  return all;
}

/// Runs the executable that has nothing but faulty implementations and an honest one (supervise/faulty/).
inline CommandResult run_faulty(const std::string& arguments, const std::string& before = "") {
  return run_shell(before + " '" SSMBENCH_FAULTY_EXECUTABLE "' run --device cpu " + arguments,
                   SSMBENCH_SOURCE_DIR);
}

/// What cpu-alone needs in its environment.
inline std::string for_cpu_alone(const TemporaryFolder& folder) {
  return "SSMBENCH_MEETING=" + folder.write("meeting", "").string() +
         " SSMBENCH_THREADS=" + std::to_string(omp_get_max_threads()) + " ";
}

using Outcomes = std::map<std::string, std::string>;

/// "pass", or "error (cause): reason", by implementation and length.
inline Outcomes outcomes(const std::string& text) {
  Outcomes found;
  for (const auto& record : records_of(text)) {
    if (record.at("record") != "case") continue;
    std::string outcome = record.at("status");
    if (!record.at("cause").is_null()) outcome += " (" + record.at("cause").get<std::string>() + ")";
    if (const std::string reason = record.at("reason"); !reason.empty()) outcome += ": " + reason;
    found[record.at("impl").get<std::string>() + " " + record.at("shape").at("seqlen").dump()] = outcome;
  }
  return found;
}

}  // namespace ssmbench::test
