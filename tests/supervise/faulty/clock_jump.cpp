// Preloaded, makes the calendar's clocks jump forth and back by a day each time that they are read. Those
// that only ever go forward are left alone.

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>

namespace {

time_t jump() {
  static int calls = 0;
  constexpr time_t kDay = 24 * 60 * 60;
  return ++calls % 2 == 0 ? kDay : -kDay;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  const auto status = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
  return status;
}

int gettimeofday(struct timeval* now, void* /*zone*/) noexcept {
  struct timespec exact {};
  const int status = clock_gettime(CLOCK_REALTIME, &exact);
  *now = {exact.tv_sec, exact.tv_nsec / 1000};
  return status;
}

time_t time(time_t* now) noexcept {
  struct timespec exact {};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}
}
