// The only file that knows MPI.

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <list>
#include <numeric>
#include <thread>

#include "base/errors.h"
#include "launch/launcher.h"
#include "launch/ranks.h"

namespace ssmbench {
namespace {

constexpr int kTag = 1;
/// Between two looks at what is on the way, while ranks end.
constexpr std::chrono::milliseconds kLookEvery{1};

void check(int error) {
  if (error == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  throw DeviceError(fmt::format("MPI: {}", std::string_view(text.data(), static_cast<std::size_t>(length))));
}

/// The texts of all of a communicator, by rank. Everybody gets them.
std::vector<std::string> all_gather(MPI_Comm comm, const std::string& text) {
  int size = 0;
  check(MPI_Comm_size(comm, &size));
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<std::size_t>(size)), begins(static_cast<std::size_t>(size));
  check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm));
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
  check(MPI_Allgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR,
                       comm));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    texts.push_back(all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
  return texts;
}

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    int given = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given));
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host_));
  }
  ~MpiRanks() override {
    try {
      wait_for_all();
    } catch (const DeviceError&) {  // who can no longer talk to the others has nothing to wait for
    }
    MPI_Comm_free(&host_);
    MPI_Finalize();
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;
  MpiRanks(MpiRanks&&) = delete;
  MpiRanks& operator=(MpiRanks&&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<std::string> gather(const std::string& text) override {
    auto texts = all_gather(MPI_COMM_WORLD, text);
    if (rank_ != 0) texts.clear();
    return texts;
  }
  std::string broadcast(const std::string& text) override {
    return all_gather(MPI_COMM_WORLD, rank_ == 0 ? text : "").front();
  }
  std::vector<std::string> share_on_host(const std::string& text, int& place) override {
    check(MPI_Comm_rank(host_, &place));
    return all_gather(host_, text);
  }

  void send(int to, std::string message) override {
    Sent& sent = sent_.emplace_back(Sent{.message = std::move(message), .request = MPI_REQUEST_NULL});
    // Not a send that waits: two ranks that sent each other something long would wait for ever.
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): receive() or the destructor waits
    check(MPI_Isend(sent.message.data(), static_cast<int>(sent.message.size()), MPI_CHAR, to, kTag,
                    MPI_COMM_WORLD, &sent.request));
  }
  std::optional<Letter> receive() override {
    sent_.remove_if([](Sent& sent) {
      int is_done = 0;
      check(MPI_Test(&sent.request, &is_done, MPI_STATUS_IGNORE));
      return is_done != 0;
    });
    int has_come = 0;
    MPI_Status status{};
    check(MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &has_come, &status));
    if (has_come == 0) return {};
    int length = 0;
    check(MPI_Get_count(&status, MPI_CHAR, &length));
    Letter letter{.from = status.MPI_SOURCE, .message = std::string(static_cast<std::size_t>(length), '\0')};
    check(MPI_Recv(letter.message.data(), length, MPI_CHAR, letter.from, kTag, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE));
    return letter;
  }

 private:
  struct Sent {
    std::string message;
    MPI_Request request;
  };

  /// Takes what is still on the way to this rank, unread, until all have come here: one that had sent
  /// something long before it heard that the leader ends would wait for ever.
  void wait_for_all() {
    MPI_Request all_are_here = MPI_REQUEST_NULL;
    bool is_here = false;
    for (int are_here = 0; are_here == 0;) {
      while (MpiRanks::receive()) {
      }
      if (!is_here && sent_.empty()) {
        check(MPI_Ibarrier(MPI_COMM_WORLD, &all_are_here));
        is_here = true;
      }
      if (is_here) check(MPI_Test(&all_are_here, &are_here, MPI_STATUS_IGNORE));
      if (are_here == 0) std::this_thread::sleep_for(kLookEvery);
    }
  }

  int rank_ = 0, size_ = 1;
  MPI_Comm host_ = MPI_COMM_NULL;
  std::list<Sent> sent_;  ///< and perhaps still on the way
};

}  // namespace

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string version(text.data(), static_cast<std::size_t>(length));
  version.resize(std::min(version.find_first_of(",\n"), version.size()));  // the rest is who built it
  constexpr std::string_view kArticle = "Open MPI v";
  if (version.starts_with(kArticle)) version = "Open MPI " + version.substr(kArticle.size());
  return version;
}

std::unique_ptr<Ranks> join_ranks() {
  return std::make_unique<MpiRanks>();
}

}  // namespace ssmbench
