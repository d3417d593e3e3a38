#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/ceilings.h"
#include "sweep/plan.h"
#include "sweep/run_listener.h"
#include "team/rank_links.h"
#include "team/rank_order.h"

namespace ssmbench {

// What supervisor and worker say to each other. A worker is started with the arguments of its supervisor
// and makes the same plan of them. At these descriptors it finds a stream of orders, and a pipe for its
// messages. The stream begins with WorkerOrders; then come sets of jobs, each of which the worker answers
// with `done`, until the stream ends, and the worker with it. A worker that is a rank of a team gets a
// RankOrder each time in place of that; it says `done` once, before it joins the team.

inline constexpr int kOrdersDescriptor = 3;
inline constexpr int kMessagesDescriptor = 4;

/// How often a worker that waits says so: one that is stopped, or frozen, does not.
inline constexpr std::chrono::seconds kWaitingEvery{1};

/// A worker sent an invalid message.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a worker is one of several of a run.
struct WorkerPlace {
  std::string lock = {};           ///< of the host (HostLock); empty: it is the only worker
  std::optional<int> gpu = {};     ///< that it works on in place of the plan's; of a rank: none on the CPU
  std::vector<int> cpus = {};      ///< of its own; empty: those that it may use anyway
  std::vector<int> all_cpus = {};  ///< of all workers of the host
};

struct WorkerOrders {
  int supervisor = 0;       ///< its process id
  std::string plan;         ///< plan_fingerprint
  std::string dump_folder;  ///< where to leave each job's tensors (dump_part); empty: nowhere
  std::map<std::string, Ceilings> ceilings = {};  ///< by device: RunnerOptions
  WorkerPlace place = {};
  std::string team = {};  ///< TeamMemory that it joins as `rank`, to do what its supervisor does; else empty
  int rank = 0;
  DataPath path = DataPath::host_memory;  ///< of the team
};

std::string to_bytes(const WorkerOrders& orders);
/// The order to run these jobs.
std::string to_bytes(const JobSet& jobs);
/// Throws UsageError when the descriptor has no orders: nobody but a supervisor starts workers.
WorkerOrders read_orders(int descriptor);
/// Waits for the next set of jobs, of a plan of so many. Nothing at the end of the stream.
std::optional<JobSet> next_jobs(int descriptor, std::size_t job_count);

/// What rank 0 of a team, which is their supervisor, orders the other ranks to do.
std::string to_bytes(const RankOrder& order);
/// Waits for the next one. Nothing at the end of the stream.
std::optional<RankOrder> next_rank_order(int descriptor);

/// Equal for plans with the same jobs: a config may be edited while it runs.
std::string plan_fingerprint(const Plan& plan);

/// The file in the orders' folder that holds the tensors of a job.
std::string dump_part(const std::string& folder, std::size_t job);

/// One line from a worker.
struct Message {
  enum class Kind {
    starting,  ///< a stage of a job
    resuming,  ///< the run of a job that was started before
    finished,  ///< a job; the text is its record, as in results files
    waiting,   ///< until others leave the host to it; said every kWaitingEvery, until something goes on
    leaving,   ///< the worker ends because its device is lost, or does not work at all; another one can go on
    failed,    ///< what it writes cannot be written, for the reason in the text; no other worker could
    done,      ///< all jobs of an order
  };
  Kind kind = Kind::done;
  std::size_t job = 0;
  Stage stage = Stage::inputs;
  std::string text = {};
};

/// The text of `failed` from a rank of a team, and what it says.
std::string text_of(const Explanation& why);
Explanation explanation_in(const std::string& text);

/// Without a newline.
std::string to_line(const Message& message);
/// To the supervisor. When that has gone there is nothing left to do, and the process ends.
void send(const Message& message);
/// Throws ProtocolError for anything else than to_line writes.
Message parse_message(const std::string& line);

}  // namespace ssmbench
