// Steps the wall clock of one process: loaded into the broker with LD_PRELOAD by scripts/prove histories.
//
// The file named by TIDEMARK_TEST_CLOCK_FILE (8 bytes, little-endian) is shared memory: nanoseconds that are added to
// what the system says is the wall clock. The monotonic clock is left alone, as a step of the real one leaves it.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset_ns;

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("TIDEMARK_TEST_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) offset_ns = memory;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + __atomic_load_n(offset_ns, __ATOMIC_RELAXED);
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return result;
}
