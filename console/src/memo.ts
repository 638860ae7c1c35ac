import { Component, type ComponentChild, type ComponentType } from "preact";

/** A component that is rendered again only if one of its props, its state or a signal that it reads has changed. */
export function memo<P extends object>(render: (props: P) => ComponentChild): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>, state: object): boolean {
      // A hook or a signal sets another state.
      if (state !== this.state) return true;
      const names = Object.keys(next) as (keyof P)[];
      return names.some((name) => next[name] !== this.props[name]);
    }

    override render(props: P) {
      return render(props);
    }
  };
}
