/* Preloaded by operator_crashes.py: each block of posix_memalign, which is what torch's CPU storages are, ends at
   a page that nobody may touch, and begins behind one. What is read or written outside of it ends the process; a
   write between its last byte and that page, which alignment leaves free, does so when the block is freed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define ALIGNMENT 64ul
#define SLOTS (1ul << 20)
#define LIMIT (1ul << 30)
#define GONE 1
#define FILLING 0xA5

static struct {
  uintptr_t user; /* 0: never used, GONE: freed */
  size_t size, room;
} blocks[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*real_free)(void *);

static size_t up(size_t size, size_t to) { return (size + to - 1) / to * to; }
static size_t slot_of(uintptr_t user) { return (user / ALIGNMENT * 11400714819323198485ul) >> 44; }

int posix_memalign(void **out, size_t alignment, size_t size) {
  if (size > LIMIT) return ENOMEM;
  if (alignment < ALIGNMENT) alignment = ALIGNMENT;
  if (alignment > PAGE) alignment = PAGE;
  size_t room = up(size ? size : 1, alignment), pages = up(room, PAGE);
  char *base = mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return ENOMEM;
  if (mprotect(base + PAGE, pages, PROT_READ | PROT_WRITE)) {
    munmap(base, pages + 2 * PAGE);
    return ENOMEM;
  }
  char *user = base + PAGE + pages - room;
  memset(user + size, FILLING, room - size);
  pthread_mutex_lock(&lock);
  size_t slot = slot_of((uintptr_t)user);
  while (blocks[slot].user > GONE) slot = (slot + 1) % SLOTS;
  blocks[slot].user = (uintptr_t)user;
  blocks[slot].size = size;
  blocks[slot].room = room;
  pthread_mutex_unlock(&lock);
  *out = user;
  return 0;
}

void free(void *pointer) {
  if (!real_free) real_free = dlsym(RTLD_NEXT, "free");
  uintptr_t user = (uintptr_t)pointer;
  if (user && user % ALIGNMENT == 0) {
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(user);
    while (blocks[slot].user && blocks[slot].user != user) slot = (slot + 1) % SLOTS;
    size_t size = blocks[slot].size, room = blocks[slot].room;
    int ours = blocks[slot].user == user;
    if (ours) blocks[slot].user = GONE;
    pthread_mutex_unlock(&lock);
    if (ours) {
      for (size_t i = size; i < room; i++)
        if (((unsigned char *)pointer)[i] != FILLING) abort();
      size_t pages = up(room, PAGE);
      munmap((char *)pointer - PAGE - (pages - room), pages + 2 * PAGE);
      return;
    }
  }
  real_free(pointer);
}
