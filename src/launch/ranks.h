#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ssmbench {

/// The processes that mpirun or srun started together, as one of them sees them. Each leads a worker of its
/// own: MPI is in these processes alone, which compute nothing, and a worker that crashes never reaches it.
/// One thread only may use it. Messages are any bytes; nothing but joining, gathering and leaving waits for
/// others.
class Ranks {
 public:
  virtual ~Ranks() = default;
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  Ranks(Ranks&&) = delete;
  Ranks& operator=(Ranks&&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank calls these, in the same order.
  /// The texts of all ranks, by rank; empty in all but rank 0.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// The text of rank 0.
  virtual std::string broadcast(const std::string& text) = 0;
  /// The texts of the ranks of this host, by rank. This one's place among them is `place`.
  virtual std::vector<std::string> share_on_host(const std::string& text, int& place) = 0;

  /// Sends a message; those from one rank to another come in order.
  virtual void send(int to, std::string message) = 0;
  struct Letter {
    int from;
    std::string message;
  };
  /// A message that has come; nothing where none has.
  virtual std::optional<Letter> receive() = 0;
};

/// Joins the others, and leaves them when the result goes, which waits for them. Throws UsageError where this
/// program is built without MPI. Once in the life of a process.
std::unique_ptr<Ranks> join_ranks();

}  // namespace ssmbench
