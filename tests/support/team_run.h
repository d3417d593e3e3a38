#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/case.h"
#include "model/distributed.h"
#include "model/tensor.h"
#include "reference/reference.h"

namespace ssmbench::test {

/// What a test changes of a run, to see that it is found or to make states die out sooner.
struct TeamChanges {
  /// Of the inputs that a rank draws, and of the whole.
  std::function<void(const HostTensor& input)> edit = nullptr;
  /// Another box to draw inputs from, with as many steps.
  std::function<Box(Box own, int rank)> input_box = nullptr;
};

struct TeamOutcome {
  std::vector<std::string> endings;  ///< of the ranks: "" where all went well
  std::vector<HostTensor> outputs;   ///< of the whole problem, put together; in its order
  /// The endings that are not empty, a line each.
  std::string failures() const;
};

/// Runs an implementation as `ranks` processes over shared memory: each draws its part of the inputs, fills
/// outputs and workspace with NaN, and launches twice. A second launch with other bits is a failure of the
/// rank.
TeamOutcome run_team(const Case& one, const DistributedImplementation& implementation, int ranks,
                     const TeamChanges& changes = {});

/// A case's inputs, drawn by one process, and its reference.
class WholeCase {
 public:
  explicit WholeCase(const Case& one, const TeamChanges& changes = {});
  /// What is wrong with outputs, a line each; empty where all are within their tolerances.
  std::string faults(const std::vector<HostTensor>& outputs) const;
  /// Runs an implementation, and says what is wrong with the endings or the outputs.
  std::string faults_of(const DistributedImplementation& implementation, int ranks) const;
  const Case& the_case() const { return case_; }

 private:
  Case case_;
  TeamChanges changes_;
  std::vector<HostTensor> inputs_;
  ReferenceOutputs reference_;
};

const DistributedImplementation& find_distributed(const std::string& op, const std::string& name);

/// The implementation on a team that Team makes of the true one.
template <class Team>
DistributedImplementation on_team(const DistributedImplementation& honest) {
  DistributedImplementation changed = honest;
  changed.bind = [honest](const Problem& whole, const TensorSet& parts, void* workspace,
                          Communicator& team) -> Launch {
    const auto other = std::make_shared<Team>(team);
    return [other, launch = honest.bind(whole, parts, workspace, *other).launch](void* stream) {
      launch(stream);
    };
  };
  return changed;
}

}  // namespace ssmbench::test
