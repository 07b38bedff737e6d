/*
 * A library that is preloaded into a recorder. The library simulates a disk for the files below DISK_BELOW.
 *
 * While the file DISK_TRIGGER exists, operations on the disk fail with EIO. The first letter in this file selects the
 * operations. `w`: writes; `s`: syncs; any other letter: writes, syncs and opening of files.
 *
 * After each successful sync, the library appends a line with inode and length of the synced file to the file
 * DISK_SYNCED. A power failure preserves at least the first `length` bytes of a file.
 *
 * DISK_SLOW_MS: delay of every sync, in milliseconds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_ours(int fd) {
  const char *below = getenv("DISK_BELOW");
  if (below == NULL) return 0;
  char name[64], path[PATH_MAX];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strncmp(path, below, strlen(below)) == 0;
}

static int spoiled(int fd, char what) {
  const char *trigger = getenv("DISK_TRIGGER");
  if (trigger == NULL || !is_ours(fd)) return 0;
  int opened = open(trigger, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return 0;
  char which = 0;
  if (read(opened, &which, 1) < 0) which = 0;
  close(opened);
  if ((which == 'w' || which == 's') && which != what) return 0;
  errno = EIO;
  return 1;
}

/* Returns 1, with EIO, if files cannot be opened because all operations of the disk fail. */
static int closed_off(const char *path) {
  const char *below = getenv("DISK_BELOW");
  const char *trigger = getenv("DISK_TRIGGER");
  if (below == NULL || trigger == NULL || strncmp(path, below, strlen(below)) != 0) return 0;
  char which = 0;
  int opened = open(trigger, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return 0;
  if (read(opened, &which, 1) < 0) which = 0;
  close(opened);
  if (which == 'w' || which == 's') return 0;
  errno = EIO;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int synced(int fd, int (*sync)(int)) {
  if (spoiled(fd, 's')) return -1;
  const char *slow = getenv("DISK_SLOW_MS");
  if (slow != NULL && is_ours(fd)) usleep(1000 * atoi(slow));
  struct stat before;
  const char *log = getenv("DISK_SYNCED");
  int noted = log != NULL && is_ours(fd) && fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
  int result = sync(fd);
  if (result != 0 || !noted) return result;
  char line[64];
  int length = snprintf(line, sizeof line, "%llu %lld\n", (unsigned long long)before.st_ino, (long long)before.st_size);
  int opened = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (opened < 0 || REAL(write)(opened, line, length) != length) abort();
  close(opened);
  return 0;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }
static mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return closed_off(path) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return closed_off(path) ? -1 : REAL(open64)(path, flags, mode);
}
ssize_t write(int fd, const void *from, size_t bytes) {
  return spoiled(fd, 'w') ? -1 : REAL(write)(fd, from, bytes);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  return spoiled(fd, 'w') ? -1 : REAL(writev)(fd, parts, count);
}
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) {
  return spoiled(fd, 'w') ? -1 : REAL(pwrite)(fd, from, bytes, at);
}
ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) {
  return spoiled(fd, 'w') ? -1 : REAL(pwrite64)(fd, from, bytes, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  return spoiled(fd, 'w') ? -1 : REAL(pwritev)(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  return spoiled(fd, 'w') ? -1 : REAL(pwritev64)(fd, parts, count, at);
}
