/*
 * A known cost for each execution, for `pgss_rs_load calibrate`, which compiles this and preloads it into a throwaway server.
 *
 * The cost is a chain of steps, each of which needs the one before: it takes as many processor cycles whatever runs beside it
 * and reads no clock. Fences keep the processor from finishing what came before, and from beginning what comes after, while the
 * steps are on their way; both arms have them. How many steps make a ns is measured when the server starts. What the steps
 * really take is timed where they run, for each execution, by readings of the clock that both arms have, too;
 * pgss_rs_busy_took() tells how long they took in the middle.
 */
#include "postgres.h"

#include <time.h>

#include "executor/executor.h"
#include "fmgr.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

/* For each measurement of the steps: long against a reading of the clock, short against the scheduler's slices. */
#define STEPS 20000
#define TRIALS 201

static int	busy_ns = 0;
static int64 busy_steps = 0;
static double steps_per_ns = 1;
static double ticks_per_ns = 1;

/* A random sample of this session's executions, by what was asked for: the processor's pace drifts. */
#define KEPT 4096
static struct
{
	int			ns;
	int64		count;
	double		taken[KEPT];
}			costs[] = {{0}, {300}, {1000}, {10000}};

static volatile uint64 sink;
static ExecutorStart_hook_type previous_start = NULL;

static inline void
fence(void)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence\n\tlfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb sy\n\tisb" ::: "memory");
#endif
}

/* Ticks of a clock that is cheap to read. */
static inline uint64
ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64CONST(1000000000) + t.tv_nsec;
#endif
}

/* How many ticks the steps took. */
static pg_noinline uint64
be_busy(int64 steps)
{
	uint64		x = sink | 1;
	uint64		start;
	uint64		end;

	fence();
	start = ticks();
	fence();
	for (int64 i = 0; i < steps; i++)
	{
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink = x;
	fence();
	end = ticks();
	fence();
	return end - start;
}

static double
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int
by_size(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/*
 * The interquartile mean of the first `count` values, which are put into order. As the driver's own estimates; and a clock whose
 * readings are some ns apart has no median between two of them.
 */
static double
middle(double *values, int count)
{
	double		sum = 0;
	int			first = count / 4;
	int			end = count - first;

	qsort(values, count, sizeof(double), by_size);
	for (int i = first; i < end; i++)
		sum += values[i];
	return count > 0 ? sum / (end - first) : 0;
}

/* Steps and ticks to the ns. */
static void
calibrate(void)
{
	double		ns[TRIALS];
	double		of_steps[TRIALS];

	for (int trial = 0; trial < TRIALS; trial++)
	{
		double		start = now_ns();
		uint64		taken = be_busy(STEPS);

		ns[trial] = now_ns() - start;
		of_steps[trial] = taken / ns[trial];
	}
	steps_per_ns = STEPS / middle(ns, TRIALS);
	ticks_per_ns = middle(of_steps, TRIALS);
}

/* From 0 to below the limit. */
static int64
draw(int64 limit)
{
	static uint64 state = 1;

	state = state * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return (state >> 33) % limit;
}

static void
start(QueryDesc *query, int flags)
{
	uint64		taken = be_busy(busy_steps);

	for (int i = 0; i < lengthof(costs); i++)
	{
		if (costs[i].ns == busy_ns)
		{
			int64		place = costs[i].count++;

			if (place >= KEPT)
				place = draw(costs[i].count);
			if (place < KEPT)
				costs[i].taken[place] = taken;
		}
	}
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
assign_ns(int ns, void *extra)
{
	busy_steps = (int64) (ns * steps_per_ns + 0.5);
}

PG_FUNCTION_INFO_V1(pgss_rs_busy_took);
Datum		pgss_rs_busy_took(PG_FUNCTION_ARGS);
void		_PG_init(void);

/* The middle ns of this session's executions at a cost, less those at none; null if there were none. */
Datum
pgss_rs_busy_took(PG_FUNCTION_ARGS)
{
	int			ns = PG_GETARG_INT32(0);
	double		none = 0;

	for (int i = 0; i < lengthof(costs); i++)
	{
		int			count = Min(costs[i].count, KEPT);
		double		taken = middle(costs[i].taken, count) / ticks_per_ns;

		if (i == 0)
			none = taken;
		else if (costs[i].ns == ns && count > 0)
			PG_RETURN_FLOAT8(taken - none);
	}
	PG_RETURN_NULL();
}

void
_PG_init(void)
{
	calibrate();
	DefineCustomIntVariable("pgss_rs_busy.ns", "Cost of each execution.", NULL, &busy_ns, 0, 0, 1000000,
							PGC_USERSET, 0, NULL, assign_ns, NULL);
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
