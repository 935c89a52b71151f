// Numbers, times and durations, formatted as on the command line.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

/** 6,120; a fraction keeps three digits. */
export function num(n: number): string {
	return Number.isInteger(n) || Math.abs(n) >= 1000 ? whole.format(n) : three.format(n);
}

const periods: Record<string, number> = { s: 1, min: 60, h: 3600, day: 86400 };

/**
 * A rate in the shortest period in which it is at least 1: 10/s, 30/min, 2/h. If the rule of a
 * limit is given, the period is that of the rule.
 */
export function rate(perSecond: number, rule = ''): string {
	const period = /\d\/(s|min|h|day)$/.exec(rule)?.[1];
	if (period) return `${num(perSecond * periods[period]!)}/${period}`;
	if (perSecond === 0 || perSecond >= 1) return num(perSecond) + '/s';
	if (perSecond * 60 >= 1) return num(perSecond * 60) + '/min';
	if (perSecond * 3600 >= 1) return num(perSecond * 3600) + '/h';
	return num(perSecond * 86400) + '/day';
}

/** A measured rate with so many decimals; a dash until it is known. */
export function measured(perSecond: number | null, decimals: number): string {
	return perSecond === null ? '–' : rate(Math.round(perSecond * 10 ** decimals) / 10 ** decimals);
}

/** 0.4137 is 41 %. A part is not rounded to 0 % or 100 %. */
export function percent(part: number): string {
	if (part > 0 && part < 0.01) return '< 1\u00a0%';
	if (part > 0.99 && part < 1) return '> 99\u00a0%';
	return `${num(Math.round(part * 100))}\u00a0%`;
}

/** plural(1, 'job') is "1 job", plural(2, 'job') "2 jobs". */
export function plural(n: number, one: string, many = one + 's'): string {
	return `${num(n)} ${n === 1 ? one : many}`;
}

/** A size: 640 B, 1.4 MiB. */
export function bytes(n: number): string {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
	let i = 0;
	for (; n >= 1000 && i < units.length - 1; i++) n /= 1024;
	return `${i === 0 || n >= 100 ? whole.format(n) : n.toFixed(1)} ${units[i]}`;
}

/** A duration in one unit: 84 ms, 12 s, 40 min. */
export function span(ms: number): string {
	ms = Math.max(ms, 0);
	if (ms < 1000) return `${Math.floor(ms)} ms`;
	if (ms < 120_000) return `${three.format(ms / 1000)} s`;
	if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
	if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
	return `${Math.round(ms / 86_400_000)} days`;
}

/** A duration to three digits, to be compared with others: 84 ms, 5.67 min, 3.94 h. */
export function fineSpan(ms: number): string {
	if (ms < 120_000) return span(ms);
	return ms < 7_200_000 ? `${num(ms / 60_000)} min` : `${num(ms / 3_600_000)} h`;
}

const two = (n: number) => String(n).padStart(2, '0');

/** A local time: with seconds within 5 minutes of now, with the date beyond 20 hours. */
export function clock(t: number, now: number): string {
	const d = new Date(t), away = Math.abs(t - now);
	const time = `${two(d.getHours())}:${two(d.getMinutes())}`;
	if (away < 300_000) return `${time}:${two(d.getSeconds())}`;
	if (away < 72_000_000) return time;
	return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

/** 14:12:08.204, for rows whose order within a second matters. */
export function precise(t: number): string {
	const d = new Date(t);
	return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

/** "12 s ago", "in 40 min", "now". */
export function relative(t: number, now: number): string {
	const away = t - now;
	if (Math.abs(away) < 1000) return away > 0 ? `in ${span(away)}` : 'now';
	const seconds = span(Math.round(Math.abs(away) / 1000) * 1000);
	return away > 0 ? `in ${seconds}` : `${seconds} ago`;
}

export const time = (text: string | undefined): number => (text ? Date.parse(text) : NaN);

export const algorithmName = (id: string): string => id.replaceAll('_', ' ');

/** Which calls a limit holds, if not all. */
export const side = (l: { for?: string }): string => (l.for === 'jobs' ? 'for jobs alone' : 'for calls without a job');

/** An id of the API as a label: a capital first letter, and spaces for underscores. */
export const sentenceCase = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1).replaceAll('_', ' ');
