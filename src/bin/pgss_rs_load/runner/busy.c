/*
 * A known cost for each execution, for `pgss_rs_load calibrate`, which compiles this and preloads it into a throwaway server.
 *
 * The cost is a chain of steps, each of which needs the one before: it takes as many processor cycles whatever runs beside it.
 * Fences keep the processor from finishing what came before, and from beginning what comes after, while the steps are on their
 * way. How many steps make a ns is measured by the system's clock when the server starts. What they really take is read around
 * them in each execution, as CPU time, so that the time of whoever interrupts them does not count, but the timer interrupts that
 * a longer statement meets more often do. Both arms have the fences and the readings.
 */
#include "postgres.h"

#include <time.h>

#include "executor/executor.h"
#include "fmgr.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

/* For each measurement of the steps: long against a reading of the clock, short against the scheduler's slices. */
#define STEPS 1000
#define TRIALS 201

/*
 * Steps of every execution: a loop leaves the processor's predictions of branches in another state than no loop does, which costs
 * what comes after it some ns.
 */
#define BASE_NS 300

static int	busy_ns = 0;
static int64 busy_steps = 0;
static double steps_per_ns = 1;

/* Of the executions since the cost was last set. */
static int64 executions = 0;
static double taken_ns = 0;
/* What SHOW calls; its value is never looked at. */
static int	took_dummy = 0;

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

static double
now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* How long the steps took by a clock. */
static pg_noinline double
be_busy(int64 steps, clockid_t clock)
{
	uint64		x = sink | 1;
	double		start = now_ns(clock);

	fence();
	for (int64 i = 0; i < steps; i++)
	{
#pragma GCC unroll 16
		for (int j = 0; j < 16; j++)
		{
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
	}
	sink = x;
	fence();
	return now_ns(clock) - start;
}

static int
by_size(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* Steps to the ns: of the middle trial, as some are interrupted. */
static void
calibrate(void)
{
	double		ns[TRIALS];

	for (int trial = 0; trial < TRIALS; trial++)
		ns[trial] = be_busy(STEPS, CLOCK_MONOTONIC);
	qsort(ns, TRIALS, sizeof(double), by_size);
	steps_per_ns = STEPS / ns[TRIALS / 2];
}

static void
start(QueryDesc *query, int flags)
{
	double		taken = be_busy(busy_steps, CLOCK_THREAD_CPUTIME_ID);

	if (executions++ >= SETTLE)
		taken_ns += taken;
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
assign_ns(int ns, void *extra)
{
	busy_steps = (int64) ((BASE_NS + ns) * steps_per_ns + 0.5);
	executions = 0;
	taken_ns = 0;
}

/* ns for each execution, the readings included. SHOW executes no plan, so it does not count itself. */
static const char *
show_took(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%.3f", executions > SETTLE ? taken_ns / (executions - SETTLE) : 0.0);
	return text;
}

void		_PG_init(void);

void
_PG_init(void)
{
	calibrate();
	DefineCustomIntVariable("pgss_rs_busy.ns", "Cost of each execution.", NULL, &busy_ns, 0, 0, 1000000,
							PGC_USERSET, 0, NULL, assign_ns, NULL);
	DefineCustomIntVariable("pgss_rs_busy.took", "What each execution since took, in ns.", NULL, &took_dummy, 0, 0, 0,
							PGC_INTERNAL, 0, NULL, NULL, show_took);
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
