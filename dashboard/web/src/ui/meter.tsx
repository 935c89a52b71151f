import { useEffect, useRef } from 'preact/hooks';
import { num } from '../format';

/** How full a bucket is: permits that may go at once, of those it can hold. */
export function Meter({ level, full, label }: { level: number; full: number; label: string }) {
	const bar = useRef<HTMLSpanElement>(null);
	const part = full > 0 ? Math.min(Math.max(level / full, 0), 1) : 0;
	// A style attribute is against the policy; a property set from here is not.
	useEffect(() => bar.current!.style.setProperty('--part', String(part)), [part]);
	const shown = Math.floor(Math.max(level, 0));
	return (
		<span class="meter">
			<span class="bar" ref={bar} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={full} aria-valuenow={shown} aria-valuetext={`${num(shown)} of ${num(full)}`} />
			<span class="figure">{num(shown)}<span class="of">/{num(full)}</span></span>
		</span>
	);
}
