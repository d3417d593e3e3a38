// The memory of a team, all of it zero at first:
//
//   header      ranks, bytes of a mailbox
//   seats       of each rank: whether it is there, and how many exchanges it has come to
//   channels    of each pair of ranks: pieces sent, pieces taken, and the piece under way
//   mailboxes   of each rank two, which take turns
//
// All collective calls are exchanges: each rank writes its mailbox, comes to the exchange, waits for the others
// to come, and reads. A rank that has come to exchange k has read what exchange k − 1 brought, so that two
// mailboxes are enough, and one meeting an exchange.
//
// A rank holds the robust mutex of its seat while it is in the team. The kernel gives the mutex to the next
// who asks when the thread that holds it ends, whatever ended it; that is how the others know.

#include "team/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <system_error>
#include <thread>

#include "base/errors.h"

namespace ssmbench {
namespace {

using Clock = std::chrono::steady_clock;

enum class Presence : std::uint32_t { awaited, joined, left, ended };

enum class Call : std::uint32_t { join, all_gather, all_reduce, all_to_all, barrier, agree };
constexpr std::array<const char*, 6> kCalls{"join",       "all_gather", "all_reduce",
                                            "all_to_all", "barrier",    "agree"};

constexpr std::size_t kLine = 64;
constexpr std::size_t round_up_to_line(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

struct alignas(kLine) Header {
  std::int32_t ranks;
  std::uint64_t mailbox_bytes;
};

/// What a rank is at, so that ranks that do different things notice.
struct Doing {
  Call call;
  std::uint64_t bytes;

  bool operator==(const Doing&) const = default;
  std::string text() const {
    return fmt::format("{} of {} bytes", kCalls[static_cast<std::size_t>(call)], bytes);
  }
};

struct alignas(kLine) Seat {
  pthread_mutex_t held;  // by the rank
  std::atomic<Presence> presence;
  std::atomic<std::uint64_t> exchanges;  // that the rank has come to
  Doing doing[2];                        // at the last one, and at the one before
};

struct alignas(kLine) Channel {
  std::atomic<std::uint64_t> sent, taken;  // pieces
  std::uint64_t bytes;                     // of the whole message
  static constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::byte piece[kPiece];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<Presence>::is_always_lock_free);

/// Where everything lies.
class Layout {
 public:
  Layout(int ranks, std::size_t mailbox_bytes)
      : ranks_(static_cast<std::size_t>(ranks)), mailbox_(round_up_to_line(mailbox_bytes)) {}

  std::size_t seat(int rank) const { return sizeof(Header) + static_cast<std::size_t>(rank) * sizeof(Seat); }
  std::size_t channel(int from, int to) const {
    return seat(static_cast<int>(ranks_)) +
           (static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)) * sizeof(Channel);
  }
  std::size_t mailbox(int rank, std::uint64_t exchange) const {
    return channel(static_cast<int>(ranks_), 0) +
           (static_cast<std::size_t>(rank) * 2 + static_cast<std::size_t>(exchange % 2)) * mailbox_;
  }
  std::size_t bytes() const { return mailbox(static_cast<int>(ranks_), 0); }

 private:
  std::size_t ranks_, mailbox_;
};

std::string last_error() {
  return std::generic_category().message(errno);
}

/// Memory that was mapped, and goes with the object.
class Mapping {
 public:
  Mapping(const std::string& name, int file, std::size_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) throw DeviceError(fmt::format("shared memory {}: {}", name, last_error()));
    data_ = static_cast<std::byte*>(memory);
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&&) = delete;
  Mapping& operator=(Mapping&&) = delete;

  template <class T>
  T& at(std::size_t offset) const {
    return *std::launder(reinterpret_cast<T*>(data_ + offset));
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

/// A file descriptor that is closed.
class OpenFile {
 public:
  explicit OpenFile(int file) : file_(file) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  OpenFile(OpenFile&&) = delete;
  OpenFile& operator=(OpenFile&&) = delete;
  int get() const { return file_; }

 private:
  int file_;
};

void make_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

class SharedMemoryTeam : public Communicator {
 public:
  SharedMemoryTeam(const std::string& name, int file, std::size_t bytes, int rank,
                   std::chrono::milliseconds patience)
      : memory_(name, file, bytes),
        ranks_(memory_.at<Header>(0).ranks),
        mailbox_bytes_(memory_.at<Header>(0).mailbox_bytes),
        layout_(ranks_, mailbox_bytes_),
        rank_(rank),
        patience_(patience) {
    if (rank < 0 || rank >= ranks_)
      throw DeviceError(fmt::format("rank {} cannot join: the team has ranks 0 to {}", rank, ranks_ - 1));
    if (own().presence != Presence::awaited || pthread_mutex_trylock(&own().held) != 0)
      throw DeviceError(fmt::format("rank {} has joined the team before", rank));
    own().presence = Presence::joined;
    try {
      exchange(
          {Call::join, 0}, [](std::byte*) {}, [](int, const std::byte*) {});
    } catch (...) {
      leave();
      throw;
    }
  }
  ~SharedMemoryTeam() override { leave(); }
  SharedMemoryTeam(const SharedMemoryTeam&) = delete;
  SharedMemoryTeam& operator=(const SharedMemoryTeam&) = delete;
  SharedMemoryTeam(SharedMemoryTeam&&) = delete;
  SharedMemoryTeam& operator=(SharedMemoryTeam&&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }

  void all_gather(const void* from, void* to, std::size_t bytes, void* /*stream*/) override {
    for_each_piece(bytes, mailbox_bytes_, [&](std::size_t begin, std::size_t count) {
      exchange(
          {Call::all_gather, bytes},
          [&](std::byte* mailbox) { std::memcpy(mailbox, bytes_at(from, begin), count); },
          [&](int sender, const std::byte* mailbox) {
            std::memcpy(bytes_at(to, static_cast<std::size_t>(sender) * bytes + begin), mailbox, count);
          });
    });
  }

  void all_reduce(float* values, std::size_t count, void* /*stream*/) override {
    for_each_piece(count, mailbox_bytes_ / sizeof(float), [&](std::size_t begin, std::size_t floats) {
      exchange(
          {Call::all_reduce, count * sizeof(float)},
          [&](std::byte* mailbox) { std::memcpy(mailbox, values + begin, floats * sizeof(float)); },
          [&](int sender, const std::byte* mailbox) {
            const std::span terms(reinterpret_cast<const float*>(mailbox), floats);
            for (std::size_t i = 0; i < floats; ++i)
              values[begin + i] = sender == 0 ? terms[i] : values[begin + i] + terms[i];
          });
    });
  }

  void all_to_all(const void* from, void* to, std::size_t bytes, void* /*stream*/) override {
    const std::size_t most = mailbox_bytes_ / static_cast<std::size_t>(ranks_);
    for_each_piece(bytes, most, [&](std::size_t begin, std::size_t count) {
      exchange(
          {Call::all_to_all, bytes},
          [&](std::byte* mailbox) {
            for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r)
              std::memcpy(mailbox + r * most, bytes_at(from, r * bytes + begin), count);
          },
          [&](int sender, const std::byte* mailbox) {
            std::memcpy(bytes_at(to, static_cast<std::size_t>(sender) * bytes + begin),
                        mailbox + static_cast<std::size_t>(rank_) * most, count);
          });
    });
  }

  void send(const void* from, std::size_t bytes, int to, void* /*stream*/) override {
    auto& channel = memory_.at<Channel>(layout_.channel(rank_, to));
    for_each_piece(bytes, Channel::kPiece, [&](std::size_t begin, std::size_t count) {
      wait_for(to, "taken what was sent", [&] { return channel.taken == channel.sent; });
      channel.bytes = bytes;
      std::memcpy(channel.piece, bytes_at(from, begin), count);
      ++channel.sent;
    });
  }

  void receive(void* to, std::size_t bytes, int from, void* /*stream*/) override {
    auto& channel = memory_.at<Channel>(layout_.channel(from, rank_));
    for_each_piece(bytes, Channel::kPiece, [&](std::size_t begin, std::size_t count) {
      wait_for(from, "sent", [&] { return channel.sent > channel.taken; });
      if (channel.bytes != bytes)
        throw DeviceError(
            fmt::format("rank {} sent {} bytes, rank {} receives {}", from, channel.bytes, rank_, bytes));
      std::memcpy(bytes_at(to, begin), channel.piece, count);
      ++channel.taken;
    });
  }

  void barrier() override {
    exchange(
        {Call::barrier, 0}, [](std::byte*) {}, [](int, const std::byte*) {});
  }

  double agree(double value) override {
    double largest = value;
    exchange(
        {Call::agree, sizeof(double)},
        [&](std::byte* mailbox) { std::memcpy(mailbox, &value, sizeof value); },
        [&](int /*sender*/, const std::byte* mailbox) {
          double other = 0;
          std::memcpy(&other, mailbox, sizeof other);
          largest = std::max(largest, other);
        });
    return largest;
  }

 private:
  static const std::byte* bytes_at(const void* data, std::size_t offset) {
    return static_cast<const std::byte*>(data) + offset;
  }
  static std::byte* bytes_at(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
  }

  /// Calls function(begin, count) for pieces of at most `most`; once where there is nothing.
  template <class Function>
  static void for_each_piece(std::size_t total, std::size_t most, const Function& function) {
    std::size_t begin = 0;
    do {
      function(begin, std::min(most, total - begin));
      begin += most;
    } while (begin < total);
  }

  Seat& seat(int rank) const { return memory_.at<Seat>(layout_.seat(rank)); }
  Seat& own() const { return seat(rank_); }
  std::byte* mailbox(int rank, std::uint64_t exchange) const {
    return memory_.data() + layout_.mailbox(rank, exchange);
  }

  void leave() {
    own().presence = Presence::left;
    pthread_mutex_unlock(&own().held);
  }

  /// write(own mailbox); once all ranks have come, read(rank, its mailbox) in the order of ranks.
  template <class Write, class Read>
  void exchange(const Doing& doing, const Write& write, const Read& read) {
    const std::uint64_t number = own().exchanges + 1;
    write(mailbox(rank_, number));
    own().doing[number % 2] = doing;
    own().exchanges = number;
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      wait_for(other, number == 1 ? "joined" : fmt::format("come to {}", doing.text()),
               [&] { return seat(other).exchanges >= number; });
      if (const Doing& found = seat(other).doing[number % 2]; found != doing)
        throw DeviceError(
            fmt::format("rank {} is at {}, rank {} at {}", other, found.text(), rank_, doing.text()));
    }
    for (int sender = 0; sender < ranks_; ++sender) read(sender, mailbox(sender, number));
  }

  /// Waits until done(), which `rank` brings about.
  template <class Done>
  void wait_for(int rank, const std::string& what, const Done& done) {
    constexpr int kSpins = 2000;  // cores may be fewer than ranks, so each gives its core away
    for (int spin = 0; spin < kSpins; ++spin) {
      if (done()) return;
      std::this_thread::yield();
    }
    const auto start = Clock::now();
    while (!done()) {
      if (has_gone(rank)) {
        if (done()) return;  // it did so, and went
        throw DeviceError(fmt::format("rank {} {} and has not {}", rank,
                                      seat(rank).presence == Presence::left ? "left the team" : "ended",
                                      what));
      }
      if (Clock::now() - start > patience_)
        throw DeviceError(fmt::format("rank {} has not {} for {} s", rank, what,
                                      std::chrono::duration<double>(patience_).count()));
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  bool has_gone(int rank) const {
    Seat& other = seat(rank);
    if (other.presence != Presence::joined) return other.presence != Presence::awaited;
    const int locked = pthread_mutex_trylock(&other.held);
    if (locked == EBUSY) return false;
    if (locked == EOWNERDEAD) {
      other.presence = Presence::ended;
      pthread_mutex_unlock(&other.held);  // not made consistent: nobody gets it any more
    } else if (locked == 0) {             // it has left meanwhile
      pthread_mutex_unlock(&other.held);
    }
    return true;
  }

  Mapping memory_;
  int ranks_;
  std::size_t mailbox_bytes_;
  Layout layout_;
  int rank_;
  std::chrono::milliseconds patience_;
};

}  // namespace

TeamMemory::TeamMemory(int ranks, std::size_t mailbox_bytes) {
  static std::atomic<int> number{0};
  mailbox_bytes = std::max(mailbox_bytes, kLine * static_cast<std::size_t>(ranks));
  name_ = fmt::format("/ssmbench-{}-{}", getpid(), number++);
  const OpenFile file(shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) throw DeviceError(fmt::format("shared memory {}: {}", name_, last_error()));
  const Layout layout(ranks, mailbox_bytes);
  try {
    // Room is taken now: a full file system would be a signal later.
    if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(layout.bytes())); error != 0)
      throw DeviceError(fmt::format("shared memory {} of {} bytes: {}", name_, layout.bytes(),
                                    std::generic_category().message(error)));
    const Mapping memory(name_, file.get(), layout.bytes());
    new (memory.data()) Header{.ranks = ranks, .mailbox_bytes = mailbox_bytes};
    for (int rank = 0; rank < ranks; ++rank)
      make_mutex((new (memory.data() + layout.seat(rank)) Seat{})->held);
    for (int pair = 0; pair < ranks * ranks; ++pair)
      new (memory.data() + layout.channel(pair / ranks, pair % ranks)) Channel;
  } catch (...) {
    shm_unlink(name_.c_str());
    throw;
  }
}

TeamMemory::~TeamMemory() {
  shm_unlink(name_.c_str());
}

std::unique_ptr<Communicator> join_team(const std::string& name, int rank,
                                        std::chrono::milliseconds patience) {
  const OpenFile file(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0)
    throw DeviceError(fmt::format("shared memory {}: {}", name, last_error()));
  return std::make_unique<SharedMemoryTeam>(name, file.get(), static_cast<std::size_t>(status.st_size), rank,
                                            patience);
}

}  // namespace ssmbench
