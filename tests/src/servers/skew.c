/* Shifts the time that a program sees by as many microseconds as the file $SKEW_FILE holds, while it runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *skew;

static void read_time(struct timespec *now) {
  static long long none = 0;
  if (!skew) {
    int file = open(getenv("SKEW_FILE"), O_RDONLY);
    void *shared = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    skew = shared == MAP_FAILED ? &none : shared;
  }
  long long ns = now->tv_sec * 1000000000LL + now->tv_nsec + *skew * 1000;
  now->tv_sec = ns / 1000000000LL;
  now->tv_nsec = ns % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  long failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) read_time(now);
  return (int)failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec time;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
