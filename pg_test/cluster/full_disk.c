/*
 * Preloaded into a server by persist.rs: while the file named by PGSS_RS_FULL_DISK is there, the disk is full for the
 * statistics' new file. The first write that fails so makes room again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int
is_new_file(int fd)
{
	char		link[64];
	char		name[4096];
	ssize_t		len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, name, sizeof(name) - 1);
	name[len > 0 ? len : 0] = '\0';
	return strstr(name, "/pgss_rs.stat.tmp") != NULL;
}

ssize_t
write(int fd, const void *bytes, size_t size)
{
	const char *full = getenv("PGSS_RS_FULL_DISK");

	if (full && access(full, F_OK) == 0 && is_new_file(fd))
	{
		unlink(full);
		errno = ENOSPC;
		return -1;
	}
	return syscall(SYS_write, fd, bytes, size);
}
