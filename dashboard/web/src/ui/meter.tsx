import type { ComponentChildren } from 'preact';
import { num } from '../format';

/** How full a bucket is: the permits available now, out of its capacity. */
export function Meter({ level, full, label }: { level: number; full: number; label: string }) {
	const part = full > 0 ? Math.min(Math.max(level / full, 0), 1) : 0;
	const shown = Math.floor(Math.max(level, 0));
	return (
		<span class="meter">
			{/* An object, so that Preact sets the property: the policy forbids the attribute. */}
			<span class="bar" style={{ '--part': part }} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={full} aria-valuenow={shown} aria-valuetext={`${num(shown)} of ${num(full)}`} />
			<span class="figure">{num(shown)}<span class="of">/{num(full)}</span></span>
		</span>
	);
}

/** A figure behind a bar, which shows it as a part of the largest. */
export function Bar({ part, measured, children }: { part: number; measured?: boolean; children: ComponentChildren }) {
	return (
		<span class={measured ? 'meter wait measured' : 'meter wait'}>
			<span class="bar" style={{ '--part': part }} aria-hidden="true" />
			<span class="figure">{children}</span>
		</span>
	);
}
