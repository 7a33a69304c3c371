// Counts the syncs of a process: loaded into the broker with LD_PRELOAD by scripts/bench, so that "one sync per commit"
// is counted where the broker calls the system, and not where it says so itself.
//
// The file named by TIDEMARK_TEST_SYNCS (at least 16 bytes) is shared memory: at 0 the number of fdatasync and fsync
// calls of the thread that writes the journal, at 8 those of all other threads (the next slots, segments, checkpoints).

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *counts;

__attribute__((constructor)) static void open_counts(void) {
    const char *path = getenv("TIDEMARK_TEST_SYNCS");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) counts = memory;
    close(file);
}

static void count(void) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (counts) __atomic_fetch_add(&counts[strcmp(name, "journal-write") != 0], 1, __ATOMIC_SEQ_CST);
}

int fdatasync(int file) {
    static int (*next)(int);
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int result = next(file);
    count();
    return result;
}

int fsync(int file) {
    static int (*next)(int);
    if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int result = next(file);
    count();
    return result;
}
