import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { clock, time } from '../format';

/** A titled section of a page. */
export function Card({ title, end, children }: { title: ComponentChildren; end?: ComponentChildren; children: ComponentChildren }) {
	const id = useId();
	return <section class="card" aria-labelledby={id}><header><h2 id={id}>{title}</h2>{end}</header>{children}</section>;
}

/** A point in time, as local time. */
export const At = ({ at, now, title }: { at: string; now: number; title?: string }) => <time dateTime={at} title={title}>{clock(time(at), now)}</time>;
