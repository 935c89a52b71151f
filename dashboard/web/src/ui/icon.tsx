// Shapes before words, so that a state is not shown by its colour alone.
const paths = {
	ok: 'M3 8.5l3.2 3.2L13 4.8',
	hold: 'M4 3v10M12 3v10M4 7.5h8',
	pause: 'M5.5 3.5v9M10.5 3.5v9',
	warn: 'M8 2.5L14.5 13.5h-13zM8 6.8v3M8 11.6v.2',
	bad: 'M4 4l8 8M12 4l-8 8',
	wait: 'M8 2a6 6 0 100 12A6 6 0 108 2M8 5v3.2l2.2 1.4',
	idle: 'M3.5 8h9',
	next: 'M6 3.5L10.5 8 6 12.5',
	more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
	search: 'M7 2.5a4.5 4.5 0 100 9A4.5 4.5 0 107 2.5M10.3 10.3L14 14',
	sun: 'M8 5a3 3 0 100 6 3 3 0 100-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
	moon: 'M13.5 9.8A6 6 0 016.2 2.5a6 6 0 107.3 7.3z',
	auto: 'M8 2a6 6 0 100 12A6 6 0 108 2M8 2v12M8 5.5h5.4M8 8h6M8 10.5h5.4',
};
export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
	return <svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d={paths[name]} /></svg>;
}

export type Tone = 'good' | 'busy' | 'warn' | 'bad' | 'quiet';
const shapes: Record<Tone, IconName> = { good: 'ok', busy: 'hold', warn: 'warn', bad: 'bad', quiet: 'idle' };

/** A state in words, with a shape and a tone. */
export function Badge({ tone, icon, children }: { tone: Tone; icon?: IconName; children: preact.ComponentChildren }) {
	return <span class={`badge ${tone}`}><Icon name={icon ?? shapes[tone]} />{children}</span>;
}
