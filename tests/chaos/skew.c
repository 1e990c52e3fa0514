// Shifts the wall clock of a process by CLOCK_SKEW_SECONDS, if it is preloaded. The monotonic clock stays correct.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *time) {
  static int (*original)(clockid_t, struct timespec *);
  if (!original) original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = original(id, time);
  const char *skew = getenv("CLOCK_SKEW_SECONDS");
  if (result == 0 && id == CLOCK_REALTIME && skew) time->tv_sec += atoi(skew);
  return result;
}
